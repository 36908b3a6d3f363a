#include "zeno/device/graph.h"

#include "zeno/device/cuda/runtime.h"

namespace zeno {

struct Graph::Impl {
  cudaGraphExec_t exec = nullptr;
  ~Impl() {
    if (exec != nullptr) cudaGraphExecDestroy(exec);
  }
};

Graph::Graph() = default;
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

void Graph::begin(StreamRef stream) {
  // Thread-local: other ranks of the process may allocate or copy meanwhile.
  cuda::check(cudaStreamBeginCapture(cuda::native(stream), cudaStreamCaptureModeThreadLocal),
              "begin a graph");
}

void Graph::end(StreamRef stream) {
  cudaGraph_t graph = nullptr;
  cuda::check(cudaStreamEndCapture(cuda::native(stream), &graph), "end a graph");
  impl_ = std::make_unique<Impl>();
  const cudaError_t status = cudaGraphInstantiate(&impl_->exec, graph, 0);
  cudaGraphDestroy(graph);
  cuda::check(status, "instantiate a graph");
}

void Graph::replay(StreamRef stream) const {
  cuda::check(cudaGraphLaunch(impl_->exec, cuda::native(stream)), "replay a graph");
}

}  // namespace zeno
