#include "zeno/kernels/cuda/attention/attention_plans.h"

#include <fmt/core.h>

#include <map>
#include <memory>

#include "zeno/base/error.h"
#include "zeno/device/cuda/runtime.h"

namespace zeno::cuda {
namespace {

class Handle {
 public:
  Handle() {
    // Before 9.6 sums of query gradients had to be cleared by the caller.
    constexpr size_t kOldest = 90600;
    require(cudnnGetVersion() >= kOldest, ErrorKind::usage,
            "[attention] cuDNN: got version {}, expected {} or later; install a newer one", cudnnGetVersion(),
            kOldest);
    check_cudnn(cudnnCreate(&raw_), "create handle");
  }
  ~Handle() { cudnnDestroy(raw_); }
  Handle(const Handle&) = delete;
  cudnnHandle_t raw() const { return raw_; }

 private:
  cudnnHandle_t raw_ = nullptr;
};

struct Entry {
  AttentionPass pass;
  AttentionGraphSpec spec;
  std::unique_ptr<AttentionPlan> plan;
};

// What one thread has on one device; a run has a handful of shapes.
struct DevicePlans {
  Handle handle;
  std::vector<Entry> entries;
};

DevicePlans& plans_of(StreamRef stream) {
  thread_local std::map<int, DevicePlans> devices;
  return devices[stream.device().index];
}

std::string describe(AttentionPass pass, const AttentionGraphSpec& s) {
  return fmt::format("attention {} of {} entries x {} tokens, {}/{} heads of {}, window {}",
                     pass == AttentionPass::forward ? "forward" : "backward", s.batch, s.seq, s.heads,
                     s.kv_heads, s.head_dim, s.window);
}

}  // namespace

const AttentionPlan& attention_plan(StreamRef stream, AttentionPass pass, const AttentionGraphSpec& spec,
                                    size_t workspace) {
  DevicePlans& plans = plans_of(stream);
  // Every time: the space that is left may depend on more than the spec.
  const auto fitting = [&](const AttentionPlan& plan) -> const AttentionPlan& {
    ensure(plan.plan.workspace_bytes() <= workspace,
           "[{}] workspace: cuDNN asks for {} bytes, planned were {}", describe(pass, spec),
           plan.plan.workspace_bytes(), workspace);
    return plan;
  };
  for (const Entry& entry : plans.entries) {
    if (entry.pass == pass && entry.spec == spec) return fitting(*entry.plan);
  }
  AttentionGraph graph =
      pass == AttentionPass::forward ? attention_forward_graph(spec) : attention_backward_graph(spec);
  const std::string name = describe(pass, spec);
  auto plan = std::make_unique<AttentionPlan>(
      AttentionPlan{CudnnPlan(std::move(graph.graph), {.handle = plans.handle.raw()}, name), graph.ids});
  plans.entries.push_back({pass, spec, std::move(plan)});
  return fitting(*plans.entries.back().plan);
}

void run_attention_plan(StreamRef stream, const AttentionPlan& plan,
                        std::initializer_list<CudnnBinding> tensors, std::byte* workspace) {
  std::vector<CudnnBinding> bound;
  for (const CudnnBinding& tensor : tensors) {
    if (tensor.id != kNoTensor) bound.push_back(tensor);
  }
  const cudnnHandle_t handle = plans_of(stream).handle.raw();
  check_cudnn(cudnnSetStream(handle, native(stream)), "set stream");
  plan.plan.run(handle, bound, workspace);
}

}  // namespace zeno::cuda
