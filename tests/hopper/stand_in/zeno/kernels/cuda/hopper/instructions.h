// Stands in for zeno/kernels/cuda/hopper/instructions.h: the same functions, by the rules of a simulated GPU.
// And what nvcc knows without being told.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/hopper/simulated_gpu.h"

#define threadIdx (dim3{zeno::simulated::Gpu::current().thread().index})
#define blockIdx (dim3{zeno::simulated::Gpu::current().thread().block->index})
#define gridDim (dim3{zeno::simulated::Gpu::current().blocks()})
#define __launch_bounds__(...)
#undef __cluster_dims__
#define __cluster_dims__(...)

inline void __syncwarp() {
  auto& gpu = zeno::simulated::Gpu::current();
  gpu.meet(gpu.thread().warp().meeting, zeno::simulated::kWarpThreads);
}
using std::min;
// Of values that all threads of a warp have alike.
template <class T>
T __shfl_sync(uint32_t, T value, int) {
  return value;
}
inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline float __fdividef(float a, float b) { return a / b; }
inline void __trap() { throw zeno::simulated::BrokenRule("nothing traps"); }
template <class T>
T __ldcs(const T* from) {
  return *from;
}
template <class T>
void __stcs(T* to, T value) {
  *to = value;
}
template <class T>
void __stwb(T* to, T value) {
  *to = value;
}

namespace zeno::cuda::hopper {

using simulated::expect_rule, simulated::Gpu;

inline uint32_t shared_address(const void* pointer) {
  const auto offset = static_cast<const std::byte*>(pointer) - Gpu::current().thread().block->shared;
  expect_rule(offset >= 0 && offset < int64_t(simulated::kSharedBytes), "only shared memory has an address");
  return uint32_t(offset) | Gpu::current().thread().block->rank << simulated::kRankShift;
}
// Where no tile may begin: the system aligns to 16 bytes only.
inline std::byte* dynamic_shared() { return Gpu::current().thread().block->shared + 16; }

inline uint32_t rank_in_cluster() { return Gpu::current().thread().block->rank; }
inline void meet_cluster() {
  Gpu& gpu = Gpu::current();
  gpu.meet(gpu.thread().cluster->meeting, uint32_t(gpu.thread().block->warps.size()) * 2 * 32);
}

inline void init_barrier(uint32_t barrier, uint32_t arrivals) {
  Gpu::current().thread().block->barriers[simulated::place_of(barrier)] = {int(arrivals), int(arrivals), 0,
                                                                           0};
}
inline void publish_barriers() {}
inline void arrive(uint32_t barrier) { Gpu::current().arrive(*Gpu::current().thread().block, barrier, 0); }
inline void arrive_at(uint32_t barrier, uint32_t rank) {
  Gpu::current().arrive(Gpu::current().thread().cluster->blocks[rank], barrier, 0);
}
inline void arrive_expecting(uint32_t barrier, uint32_t bytes) {
  Gpu::current().arrive(*Gpu::current().thread().block, barrier, bytes);
}
inline void wait(uint32_t barrier, uint32_t parity) {
  simulated::Block& block = *Gpu::current().thread().block;
  Gpu::current().wait([&] { return block.barrier(barrier).parity != parity; });
}

inline void load_tile_for(uint16_t blocks, uint32_t to, const CUtensorMap* map, int column, int row,
                          uint32_t barrier) {
  simulated::TileMap tiles;
  std::memcpy(&tiles, map->opaque, sizeof tiles);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    if (blocks >> rank & 1)
      Gpu::current().load(Gpu::current().thread().cluster->blocks[rank], to, tiles, column, row, barrier);
  }
}
inline void load_tile(uint32_t to, const CUtensorMap* map, int column, int row, uint32_t barrier) {
  load_tile_for(uint16_t(1 << rank_in_cluster()), to, map, column, row, barrier);
}

template <int kRegisters>
void take_registers() {}
template <int kRegisters>
void give_registers() {}

inline uint4 load_vector(uint32_t address) {
  expect_rule(address % 16 == 0, "16 bytes are loaded from a multiple of 16");
  uint4 words;
  std::memcpy(&words, Gpu::current().thread().block->shared + simulated::place_of(address), sizeof words);
  return words;
}
inline void store_matrices(uint32_t row_address, const uint32_t (&words)[4]) {
  expect_rule(row_address % 16 == 0, "rows of matrices are stored at a multiple of 16");
  const simulated::Thread& thread = Gpu::current().thread();
  simulated::Warp& warp = thread.warp();
  const uint32_t lane = thread.index % simulated::kWarpThreads;
  warp.addresses[lane] = row_address;
  __syncwarp();
  for (uint32_t m = 0; m < 4; ++m)
    std::memcpy(thread.block->shared + simulated::place_of(warp.addresses[m * 8 + lane / 4]) + lane % 4 * 4,
                &words[m], 4);
  __syncwarp();
}

inline void begin_products() {}
inline void end_products() {
  const simulated::Thread& thread = Gpu::current().thread();
  const uint32_t place = thread.index % simulated::kGroupThreads;
  thread.group().ends[place].push_back(thread.group().begun[place]);
}
template <size_t kPending>
void wait_products() {
  Gpu& gpu = Gpu::current();
  const simulated::Thread& thread = gpu.thread();
  simulated::Warpgroup& group = thread.group();
  const std::vector<int>& ends = group.ends[thread.index % simulated::kGroupThreads];
  if (ends.size() <= kPending) return;
  const int until = ends[ends.size() - 1 - kPending];
  gpu.wait([&] {
    if (group.done < until && gpu.chance(4)) gpu.run_product(*thread.block, group);
    return group.done >= until;
  });
}
inline void settle(float (&)[128]) {}

template <bool kAcross>
void multiply_64x256x16(float (&sums)[128], uint64_t a, uint64_t b, bool add) {
  const simulated::Thread& thread = Gpu::current().thread();
  simulated::Warpgroup& group = thread.group();
  const uint32_t place = thread.index % simulated::kGroupThreads;
  const size_t at = size_t(group.begun[place]++ - group.done);
  if (at == group.products.size()) group.products.push_back({.a = a, .b = b, .across = kAcross});
  simulated::Product& product = group.products[at];
  expect_rule(product.a == a && product.b == b, "all threads of a group multiply the same");
  product.sums[place] = sums;
  product.add[place] = add;
  ++product.begun;
  Gpu::current().progress();
}

}  // namespace zeno::cuda::hopper
