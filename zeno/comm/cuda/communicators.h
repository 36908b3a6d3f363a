// Makes communicators for CUDA streams, behind plain functions so that the worlds need no CUDA header. In a
// build without CUDA, comm/no_cuda.cpp throws Error(usage) instead.
//
// Between threads of one process the ranks read each other's device memory; between processes NCCL moves the
// bytes. Both sum in the tree of communicator.h, so the bits do not depend on the transport.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/comm/peers.h"
#include "zeno/device/buffer.h"

namespace zeno::comm {

// World::exchange among the members of a group: returns their values by place.
using Exchange = std::function<std::vector<std::string>(std::string_view bytes)>;

// Collective. Each rank may have its own GPU, or several may share one.
std::unique_ptr<Communicator> make_cuda_thread_communicator(GroupParts parts, Device device,
                                                            const Exchange& exchange);

// The blocks of device memory that NCCL may register with its communicators.
class NcclMemory;
std::shared_ptr<NcclMemory> make_nccl_memory();
Allocator nccl_allocator(std::shared_ptr<NcclMemory> memory, Device device);

// Collective; returns when all ranks are connected. The unique id travels through `exchange`.
std::unique_ptr<Communicator> make_nccl_communicator(GroupParts parts, Device device,
                                                     const Exchange& exchange,
                                                     std::shared_ptr<NcclMemory> memory);

}  // namespace zeno::comm
