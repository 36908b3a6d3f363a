// The result of DeepSpeed's own memory estimator for a model, for comparison: model states only, with fp32
// gradients (18 bytes per parameter) and a factor of 1.5 on the host. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "zeno/device/memory.h"
#include "zeno/nn/layer.h"

namespace zeno::plan {

struct DeepSpeedEstimate {
  int stage = 2;                // 2 or 3: it knows no others
  bool optimizer_cpu = false;   // offload_optimizer
  bool parameters_cpu = false;  // offload_param, stage 3
  double device = 0;            // bytes of one GPU
  double host = 0;              // bytes of one host
};

// `largest_layer`: parameters of the largest single module. `node_ranks`: GPUs of a host.
std::vector<DeepSpeedEstimate> deepspeed_estimates(double params, double largest_layer, int ranks,
                                                   int node_ranks);

// Parameters of the largest module as a Hugging Face model has them: projections that are one matrix here are
// several there.
int64_t largest_module(const nn::LayerList& model);

// What a run needs on the device and that estimator has no term for. At stage 3 it counts one gathered layer.
std::vector<Purpose> left_out_by_deepspeed(int stage);

}  // namespace zeno::plan
