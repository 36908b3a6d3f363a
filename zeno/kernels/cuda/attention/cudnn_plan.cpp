#include "zeno/kernels/cuda/attention/cudnn_plan.h"

#include "zeno/base/error.h"

namespace zeno::cuda {
namespace {

inline constexpr int64_t kConfigs = 8;  // engines to try

CudnnDescriptor operation_graph(const CudnnGraph& graph, const CudnnTarget& target) {
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const CudnnDescriptor& operation : graph.operations()) operations.push_back(operation.raw());
  CudnnDescriptor result(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  result.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, int64_t(operations.size()),
             operations.data());
  if (target.handle != nullptr)
    result.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
  result.finalize("operation graph");
  return result;
}

CudnnDescriptor heuristics_of(const CudnnDescriptor& operations, const CudnnTarget& target) {
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  CudnnDescriptor result(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  result.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operations);
  result.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (target.handle == nullptr)
    result.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target.device);
  return result;
}

int64_t engine_of(const CudnnDescriptor& config) {
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  int64_t count = 0, index = -1;
  check_cudnn(cudnnBackendGetAttribute(config.raw(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
              "engine of the configuration");
  check_cudnn(
      cudnnBackendGetAttribute(raw, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &index),
      "engine index");
  return index;
}

}  // namespace

CudnnPlan::CudnnPlan(CudnnGraph graph, const CudnnTarget& target, const std::string& name)
    : graph_(std::move(graph)), operations_(operation_graph(graph_, target)) {
  heuristics_ = heuristics_of(operations_, target);
  heuristics_.finalize("engine heuristics");
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < kConfigs; ++i)
    raw.push_back(configs_.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).raw());
  int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(heuristics_.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, kConfigs, &count, raw.data()),
              "engine heuristics");
  for (int64_t i = 0; i < std::min(count, kConfigs); ++i) {
    if (try_config(configs_[size_t(i)], target)) return;
  }
  char words[1024] = "";
  cudnnGetLastErrorString(words, sizeof(words));
  fail(ErrorKind::internal, "[cudnn] {}: none of {} engines of cuDNN {} takes the graph; {}", name, count,
       cudnnGetVersion(), words);
}

bool CudnnPlan::try_config(CudnnDescriptor& config, const CudnnTarget& target) {
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (target.handle != nullptr) {
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
  } else {
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target.device);
  }
  if (cudnnBackendFinalize(plan.raw()) != CUDNN_STATUS_SUCCESS) return false;
  int64_t count = 0, bytes = 0;
  check_cudnn(cudnnBackendGetAttribute(plan.raw(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                       1, &count, &bytes),
              "workspace size");
  plan_ = std::move(plan);
  workspace_ = size_t(bytes);
  engine_ = engine_of(config);
  return true;
}

void CudnnPlan::run(cudnnHandle_t handle, std::span<const CudnnBinding> tensors, void* workspace) const {
  std::vector<int64_t> ids;
  std::vector<void*> data;
  for (const CudnnBinding& tensor : tensors) {
    ids.push_back(tensor.id);
    data.push_back(tensor.data);
  }
  // Values are read during the call.
  for (const CudnnGraph::Constant& constant : graph_.constants()) {
    ids.push_back(constant.id);
    data.push_back(const_cast<float*>(&constant.value));
  }
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, int64_t(ids.size()), ids.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, int64_t(data.size()), data.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.finalize("variant pack");
  check_cudnn(cudnnBackendExecute(handle, plan_.raw(), pack.raw()), "execute");
}

}  // namespace zeno::cuda
