// The instructions of Hopper GPUs (sm_90a) that C++ has no words for: barriers that count bytes, tiles that
// are brought by the copy engine, products of a warpgroup. One function each; device code only. Addresses are
// those of shared memory (32 bits), valid in the own block; what reaches the other block of a pair says so.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace zeno::cuda::hopper {

__device__ inline uint32_t shared_address(const void* pointer) {
  return uint32_t(__cvta_generic_to_shared(pointer));
}

// What the launch gave this block.
__device__ inline std::byte* dynamic_shared() {
  extern __shared__ std::byte bytes[];
  return bytes;
}

// Blocks of a cluster: which one this is, and all of their threads meeting.
__device__ inline uint32_t rank_in_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Barriers: 8 bytes of shared memory. A phase ends after `arrivals` arrivals, when all announced bytes have
// arrived too.
__device__ inline void init_barrier(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised barriers known to the cluster and to the copy engine; then meet_cluster().
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// At the barrier of the same place in block `rank` of the cluster. Orders nothing that threads of other
// blocks read by plain loads: a release for the cluster would be a fence for the whole GPU each time.
__device__ inline void arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
__device__ inline void arrive_expecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Until the phase of this parity is over. Phases count from 0; the one before the first is over.
__device__ inline void wait(uint32_t barrier, uint32_t parity) {
  uint32_t over = 0;
  do {
    asm volatile(
        "{\n"
        ".reg .pred over;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
        "selp.u32 %0, 1, 0, over;\n"
        "}"
        : "=r"(over)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (over == 0);
}

// The tile of a matrix that begins at (column, row), as `map` lays it out; its bytes count at the barrier.
__device__ inline void load_tile(uint32_t to, const CUtensorMap* map, int column, int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
// To the same place of every block in `blocks` (a bit each), at whose own barriers its bytes count.
__device__ inline void load_tile_for(uint16_t blocks, uint32_t to, const CUtensorMap* map, int column,
                                     int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(blocks)
      : "memory");
}

// Registers of every thread of this warpgroup from here on.
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// 16 bytes.
__device__ inline uint4 load_vector(uint32_t address) {
  uint4 words;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(address)
               : "memory");
  return words;
}

// Four 8 x 8 matrices of 16-bit values from registers to shared memory: lane i has the address of row i % 8
// of matrix i / 8, and in word m values 2 * (i % 4) and the next of row i / 4 of matrix m.
__device__ inline void store_matrices(uint32_t row_address, const uint32_t (&words)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address),
               "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

// Products of a warpgroup run behind its back: begin_products() before the first of a group, end_products()
// after the last, and wait_products<n>() until at most n groups are under way.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ inline void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Sums are read after this, not before.
__device__ inline void settle(float (&sums)[128]) {
#pragma unroll
  for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");
}

// sums [64, 256] = A [64, 16] · B [16, 256] (+ sums), operands as operand.h says. Warp w has rows 16 w to
// 16 w + 15; its lane i has in sums[4 j + 2 h + e] row i / 4 + 8 h, column 8 j + 2 (i % 4) + e.
template <bool kAcross>
__device__ inline void multiply_64x256x16(float (&sums)[128], uint64_t a, uint64_t b, bool add) {
#define ZENO_F4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define ZENO_F16(i) ZENO_F4(i), ZENO_F4(i + 4), ZENO_F4(i + 8), ZENO_F4(i + 12)
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0,   %1,   %2,   %3,   %4,   %5,   %6,   %7,   %8,   %9,   %10,  %11,  %12,  %13,  %14,  %15,  "
      "%16,  %17,  %18,  %19,  %20,  %21,  %22,  %23,  %24,  %25,  %26,  %27,  %28,  %29,  %30,  %31,  "
      "%32,  %33,  %34,  %35,  %36,  %37,  %38,  %39,  %40,  %41,  %42,  %43,  %44,  %45,  %46,  %47,  "
      "%48,  %49,  %50,  %51,  %52,  %53,  %54,  %55,  %56,  %57,  %58,  %59,  %60,  %61,  %62,  %63,  "
      "%64,  %65,  %66,  %67,  %68,  %69,  %70,  %71,  %72,  %73,  %74,  %75,  %76,  %77,  %78,  %79,  "
      "%80,  %81,  %82,  %83,  %84,  %85,  %86,  %87,  %88,  %89,  %90,  %91,  %92,  %93,  %94,  %95,  "
      "%96,  %97,  %98,  %99,  %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, add, 1, 1, 0, %131;\n"
      "}"
      : ZENO_F16(0), ZENO_F16(16), ZENO_F16(32), ZENO_F16(48), ZENO_F16(64), ZENO_F16(80), ZENO_F16(96),
        ZENO_F16(112)
      : "l"(a), "l"(b), "r"(int(add)), "n"(int(kAcross)));
#undef ZENO_F16
#undef ZENO_F4
}

}  // namespace zeno::cuda::hopper
