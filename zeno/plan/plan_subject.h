// What a plan is about: a model folder, an architecture, or a number of parameters.
#pragma once

#include <cstdint>
#include <optional>

#include "zeno/base/file.h"
#include "zeno/model/config.h"
#include "zeno/model/init.h"

namespace zeno::plan {

struct PlanSubject {
  model::ModelConfig model;
  std::optional<double> params;  // all that is known; `model` is then one of about that size
  bool described = false;        // without a folder: no run of this machine
};

// Throws Error(data) if the folder holds no model.
PlanSubject subject_of_folder(const Path& folder);

// A model that does not exist yet is assumed to be made for sequences of `seq_len` tokens, unless
// `positions_given` says that the options set its positions; 0: as the options have it.
PlanSubject subject_of_shape(model::InitOptions options, bool positions_given, int64_t seq_len);

// At least 1 and up to model::kMaxParameters. `sharing` ranks share sequences, and deal the heads among them.
PlanSubject subject_of_size(double params, int64_t seq_len, int64_t sharing = 1);

}  // namespace zeno::plan
