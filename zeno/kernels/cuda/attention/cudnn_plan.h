// A cuDNN execution plan: a finished graph with the engine that runs it. Building is slow (once per shape)
// and host only; running is async on the handle's stream, allocates no device memory and may be captured.
// Thread rule: one plan and one handle per thread; cuDNN does not promise more.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "zeno/kernels/cuda/attention/cudnn_graph.h"

namespace zeno::cuda {

// What a plan is built for: the device of a handle, or a device known by its description only.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  cudnnBackendDescriptor_t device = nullptr;  // used when there is no handle
};

struct CudnnBinding {
  CudnnTensorId id;
  void* data;
};

class CudnnPlan {
 public:
  // The first engine of the heuristics that accepts the graph; throws Error(internal) when none does.
  CudnnPlan(CudnnGraph graph, const CudnnTarget& target, const std::string& name);

  size_t workspace_bytes() const { return workspace_; }
  int64_t engine() const { return engine_; }
  void run(cudnnHandle_t handle, std::span<const CudnnBinding> tensors, void* workspace) const;

 private:
  bool try_config(CudnnDescriptor& config, const CudnnTarget& target);

  CudnnGraph graph_;
  CudnnDescriptor operations_, heuristics_, plan_;
  std::vector<CudnnDescriptor> configs_;
  size_t workspace_ = 0;
  int64_t engine_ = -1;
};

}  // namespace zeno::cuda
