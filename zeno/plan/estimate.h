// A plan from a bare number of parameters: the bytes of its states by formula, and the shape of a model of
// about that size for everything else. Pure functions.
#pragma once

#include <cstddef>

#include "zeno/model/init.h"
#include "zeno/zero/policy.h"

namespace zeno::plan {

// Bytes per rank, on all tiers. ZeRO with N ranks divides each by N if it is sharded; nothing is added for
// padding.
struct StateBytes {
  double parameters = 0, gradients = 0, masters = 0, moments = 0;
  double total() const { return parameters + gradients + masters + moments; }
};
StateBytes model_states(double params, const zero::Policy& policy, const comm::Mesh& mesh);

// The largest number of parameters whose states fit into this many bytes.
double most_params(double bytes, const zero::Policy& policy, const comm::Mesh& mesh);

// A llama of about this many parameters: heads of 128, 128 hidden values for every block, a vocabulary of
// 32,000, as the published ones from 7 to 70 billion roughly are. The heads can be dealt to `sharing` ranks.
model::InitOptions shape_of_size(double params, int64_t sharing = 1);

}  // namespace zeno::plan
