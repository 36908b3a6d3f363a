// The CUDA side of a build without CUDA.
#include "zeno/base/error.h"
#include "zeno/device/cuda/memory.h"
#include "zeno/device/graph.h"
#include "zeno/device/stream_impl.h"

namespace zeno {
namespace {

[[noreturn]] void refuse() {
  fail(ErrorKind::usage,
       "[device] this build has no CUDA; build on a machine with nvcc, or use --device cpu");
}

}  // namespace

std::unique_ptr<StreamImpl> make_cuda_stream(StreamOptions) { refuse(); }
int cuda_device_count() { return 0; }
void cuda_choose_device(int) { refuse(); }
CudaMemory cuda_memory(int) { refuse(); }
std::string cuda_pci_address(int) { refuse(); }
int cuda_numa_node(int) { refuse(); }
Block cuda_allocate(int, size_t) { refuse(); }
Block cuda_allocate_pinned(int, size_t) { refuse(); }
void cuda_copy(StreamRef, std::byte*, const std::byte*, size_t) { refuse(); }
void cuda_fill_zero(StreamRef, std::byte*, size_t) { refuse(); }
std::unique_ptr<Stopwatch> make_cuda_stopwatch(int, size_t) { refuse(); }

struct Graph::Impl {};
Graph::Graph() = default;
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
void Graph::begin(StreamRef) { refuse(); }
void Graph::end(StreamRef) { refuse(); }
void Graph::replay(StreamRef) const { refuse(); }

}  // namespace zeno
