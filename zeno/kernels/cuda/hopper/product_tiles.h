// A product of bf16 matrices on Hopper whose results are finished, by whatever follows it element by element,
// while the next tile is multiplied: nothing is read back from memory, and only the rounding is waited for.
//
// Two blocks of a cluster compute 128 x 256 each, one below the other: each loads its rows of A and one half
// of the columns of B for both. A block has three warpgroups:
//   0    one thread keeps a ring of slots filled by the copy engine; three warps finish: they take the bf16
//        results of a tile from shared memory and do the job's own work on them
//   1,2  multiply 64 x 256 each, and leave their sums in shared memory as bf16
// They meet at barriers: full / empty (slots of the ring), filled / drained (results of 64 rows).
//
// A Job is a plain value that says what is multiplied and what becomes of it:
//   TileOrder order          of tiles of a cluster, 256 x 256
//   int depth_blocks         the depth in blocks of kTileDepth
//   kAcross                  whether B lies across the depth (operand.h)
//   load_a(to, tile_row, block, barrier)
//                            128 rows of a block of the depth; tile_row counts in 128 rows
//   load_b(to, part, column, block, barrier)
//                            half 0 or 1 of B's tile, into both blocks
//   finish(results, first_row, column, wait)
//                            64 rows of results at that shared address, kResultPitch apart; threads 32 to 127
//                            call it, and it calls wait() before it reads them
#pragma once

#include <cuda_bf16.h>

#include "zeno/kernels/cuda/hopper/instructions.h"
#include "zeno/kernels/cuda/hopper/operand.h"
#include "zeno/kernels/cuda/hopper/tile_order.h"

namespace zeno::cuda {

inline constexpr int kBlockRows = 128, kTileColumns = 256, kPartRows = 64;
inline constexpr int kBlocks = 2;  // of a cluster
// Six slots of half the depth each took 1-2 % more time: twice as many barriers to pass.
inline constexpr int kTileDepth = hopper::kRowValues, kSlots = 3;
inline constexpr uint32_t kTileABytes = kBlockRows * hopper::kRowBytes;
inline constexpr uint32_t kTileBBytes = kTileColumns * hopper::kRowBytes;
inline constexpr uint32_t kSlotBytes = kTileABytes + kTileBBytes;
inline constexpr int kResultPitch = kTileColumns + 8;  // eight rows at one column meet all banks
inline constexpr int kGroupThreads = 128, kGroupWarps = 4, kProductThreads = 3 * kGroupThreads;
inline constexpr int kFinishWarps = kGroupWarps - 1;  // beside the one that loads

struct ProductShared {
  alignas(1024) std::byte slots[kSlots][kSlotBytes];  // A, then B
  alignas(16) __nv_bfloat16 results[2][kPartRows * kResultPitch];
  uint64_t full[kSlots], empty[kSlots], filled[2], drained[2];
};
// The system aligns to 16 bytes only.
inline constexpr size_t kProductSharedBytes = sizeof(ProductShared) + 1024;

// Where a thread is in the ring, and the parity of the phase that its barriers are in.
struct RingPlace {
  uint32_t slot = 0, parity = 0;
  __device__ void advance() {
    if (++slot < kSlots) return;
    slot = 0;
    parity ^= 1;
  }
};

// Every role passes the same tiles in the same order.
template <class Job, class F>
__device__ void for_each_tile(const Job& job, const F& f) {
  const uint32_t step = gridDim.x / kBlocks;
  for (uint32_t i = blockIdx.x / kBlocks; i < job.order.count(); i += step) f(job.order.at(i));
}

template <class Job>
__device__ void load_tiles(const Job& job, ProductShared& shared, uint32_t rank) {
  using namespace hopper;
  RingPlace place;
  for_each_tile(job, [&](Tile tile) {
    for (int block = 0; block < job.depth_blocks; ++block, place.advance()) {
      const uint32_t full = shared_address(&shared.full[place.slot]);
      const uint32_t to = shared_address(shared.slots[place.slot]);
      wait(shared_address(&shared.empty[place.slot]), place.parity ^ 1);
      arrive_expecting(full, kSlotBytes);
      job.load_a(to, tile.row * kBlocks + rank, block, full);
      job.load_b(to + kTileABytes, rank, tile.column, block, full);
    }
  });
}

// The depth of one tile, summed up by a warpgroup. A slot is given back to both blocks, because both fill it.
template <class Job>
__device__ void multiply_tile(const Job& job, ProductShared& shared, int part, RingPlace& place,
                              float (&sums)[128]) {
  using namespace hopper;
  // From 16 of the depth to the next 16.
  constexpr uint32_t kStepA = 16 * 2, kStepB = Job::kAcross ? 16 * kRowBytes : kStepA;
  const auto release = [&](uint32_t slot) {
    const uint32_t lane = threadIdx.x % 32;
    if (lane < kBlocks) arrive_at(shared_address(&shared.empty[slot]), lane);
  };
  uint32_t last = 0;
  for (int block = 0; block < job.depth_blocks; ++block, place.advance()) {
    wait(shared_address(&shared.full[place.slot]), place.parity);
    const uint32_t slot = shared_address(shared.slots[place.slot]);
    const uint64_t a = operand(slot + part * kPartRows * kRowBytes);
    const uint64_t b =
        Job::kAcross ? operand(slot + kTileABytes, kTileDepth * kRowBytes) : operand(slot + kTileABytes);
    begin_products();
#pragma unroll
    for (uint32_t step = 0; step < kTileDepth / 16; ++step) {
      multiply_64x256x16<Job::kAcross>(sums, advanced(a, step * kStepA), advanced(b, step * kStepB),
                                       block > 0 || step > 0);
    }
    end_products();
    wait_products<1>();
    if (block > 0) release(last);
    last = place.slot;
  }
  wait_products<0>();
  settle(sums);
  release(last);
}

// This warp's 16 rows of sums, rounded.
__device__ inline void leave_results(const float (&sums)[128], __nv_bfloat16* results) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % kGroupWarps;
  const uint32_t row = warp * 16 + lane % 16, column = lane / 16 * 8;
  const uint32_t address = hopper::shared_address(results + row * kResultPitch + column);
#pragma unroll
  for (int j = 0; j < kTileColumns / 8; j += 2) {
    uint32_t words[4];
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(sums[4 * j + 2 * m], sums[4 * j + 2 * m + 1]);
      words[m] = reinterpret_cast<const uint32_t&>(pair);
    }
    hopper::store_matrices(address + uint32_t(j) * 16, words);
  }
}

template <class Job>
__device__ void multiply_tiles(const Job& job, ProductShared& shared, int part) {
  using namespace hopper;
  RingPlace place;
  uint32_t parity = 1;  // nothing to drain before the first
  for_each_tile(job, [&](Tile) {
    float sums[128];
    multiply_tile(job, shared, part, place, sums);
    wait(shared_address(&shared.drained[part]), parity);
    parity ^= 1;
    leave_results(sums, shared.results[part]);
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(shared_address(&shared.filled[part]));
  });
}

template <class Job>
__device__ void finish_tiles(const Job& job, ProductShared& shared, uint32_t rank) {
  using namespace hopper;
  uint32_t parity = 0;
  for_each_tile(job, [&](Tile tile) {
    for (int part = 0; part < 2; ++part) {
      const int64_t row = (int64_t(tile.row) * kBlocks + rank) * kBlockRows + part * kPartRows;
      job.finish(shared_address(shared.results[part]), row, tile.column,
                 [&] { wait(shared_address(&shared.filled[part]), parity); });
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(shared_address(&shared.drained[part]));
    }
    parity ^= 1;
  });
}

// 168 registers a thread, more for those that multiply: sums alone are 128.
template <class Job>
__global__ void __cluster_dims__(kBlocks) __launch_bounds__(kProductThreads, 1)
    product_kernel(const __grid_constant__ Job job) {
  using namespace hopper;
  auto& shared = *reinterpret_cast<ProductShared*>(round_up<uintptr_t>(uintptr_t(dynamic_shared()), 1024));
  const uint32_t rank = rank_in_cluster();
  const uint32_t group = __shfl_sync(~0u, threadIdx.x / kGroupThreads, 0);  // known to be one for a warp
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < kSlots; ++slot) {
      init_barrier(shared_address(&shared.full[slot]), 1);
      init_barrier(shared_address(&shared.empty[slot]), kBlocks * 2 * kGroupWarps);
    }
    for (int part = 0; part < 2; ++part) {
      init_barrier(shared_address(&shared.filled[part]), kGroupWarps);
      init_barrier(shared_address(&shared.drained[part]), kFinishWarps);
    }
    publish_barriers();
  }
  __syncwarp();
  meet_cluster();
  if (group == 0) {
    give_registers<152>();
    if (threadIdx.x == 0) load_tiles(job, shared, rank);
    if (threadIdx.x >= 32) finish_tiles(job, shared, rank);
    __syncwarp();
  } else {
    take_registers<176>();
    multiply_tiles(job, shared, int(group) - 1);
  }
  meet_cluster();  // a block's memory must exist until no other block fills it or arrives in it any more
}

}  // namespace zeno::cuda
