// Communicators for CUDA streams in a build without CUDA.
#include "zeno/base/error.h"
#include "zeno/comm/cuda/communicators.h"

namespace zeno::comm {
namespace {

[[noreturn]] void refuse() {
  fail(ErrorKind::usage,
       "[comm] this build has no CUDA; build on a machine with nvcc and NCCL, or use --device cpu");
}

}  // namespace

std::unique_ptr<Communicator> make_cuda_thread_communicator(GroupParts, Device, const Exchange&) { refuse(); }
std::shared_ptr<NcclMemory> make_nccl_memory() { refuse(); }
Allocator nccl_allocator(std::shared_ptr<NcclMemory>, Device) { refuse(); }
std::unique_ptr<Communicator> make_nccl_communicator(GroupParts, Device, const Exchange&,
                                                     std::shared_ptr<NcclMemory>) {
  refuse();
}

}  // namespace zeno::comm
