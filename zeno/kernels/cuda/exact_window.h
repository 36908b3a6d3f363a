// The exact sum of one double per lane and call, for a warp: terms whose exponents lie near each other are
// added as 192-bit integers in registers, and the window reaches the limbs of an ExactSum only when it has to
// move and at the end. Integer additions, so neither the order nor the number of threads shows in the result.
#pragma once

#include <cstdint>

#include "zeno/kernels/exact_sum.h"

namespace zeno::cuda {

// Limbs of a block in shared memory; every thread of the block calls open() and close().
struct SharedLimbs {
  int64_t limbs[ExactSum::kLimbs];
  uint32_t nonfinite;

  __device__ void open() {
    for (int i = int(threadIdx.x); i < ExactSum::kLimbs; i += int(blockDim.x)) limbs[i] = 0;
    if (threadIdx.x == 0) nonfinite = 0;
    __syncthreads();
  }

  __device__ static void add(int64_t* to, int64_t value) {
    if (value != 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
  }

  // Adds all of it to `sum` in global memory. One round of carries leaves every limb below 2 · 2^32: a block
  // counts as two additions there, so ExactSum's bound holds for 2^29 blocks between its own carry passes.
  __device__ void close(ExactSum* sum) {
    __syncthreads();
    constexpr int kLast = ExactSum::kLimbs - 1;
    const ExactSum::Parts to = sum->parts();
    for (int i = int(threadIdx.x); i < ExactSum::kLimbs; i += int(blockDim.x)) {
      const int64_t kept = i < kLast ? limbs[i] & 0xffffffff : limbs[i];
      add(to.limbs + i, kept + (i > 0 ? limbs[i - 1] >> 32 : 0));
    }
    if (threadIdx.x > 0) return;
    atomicAdd(to.pending, 2u);
    if (nonfinite > 0) atomicOr(to.nonfinite, 1u);
  }
};

class ExactWindow {
 public:
  __device__ explicit ExactWindow(SharedLimbs& limbs) : limbs_(limbs) {}

  // All lanes of the warp call it together; each brings a finite value.
  __device__ void add(double value) {
    const ExactSum::Term term = ExactSum::split(value);
    const int place = int(term.place);
    const bool live = term.mantissa != 0;
    if (__any_sync(~0u, live && place > base_ + kSpan)) {
      flush();
      // Room for 2^16 above the largest term of now and for 2^96 below it.
      base_ = max(__reduce_max_sync(~0u, live ? place : 0) - (kSpan - 16), 0);
    }
    if (!live) return;
    if (place < base_) return add_alone(term);
    const int shift = (place - base_) % 64;
    const uint64_t low = term.mantissa << shift, high = term.mantissa >> 1 >> (63 - shift);
    const bool upper = place - base_ >= 64;
    const uint64_t sign = term.negative ? ~uint64_t(0) : 0;  // -x = ~x + 1
    add_words((upper ? 0 : low) ^ sign, (upper ? low : high) ^ sign, (upper ? high : 0) ^ sign,
              term.negative);
  }

  // Moves the window's contents to the limbs. All lanes together.
  __device__ void flush() {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      const uint64_t a = __shfl_xor_sync(~0u, word_[0], step);
      const uint64_t b = __shfl_xor_sync(~0u, word_[1], step);
      const uint64_t c = __shfl_xor_sync(~0u, word_[2], step);
      add_words(a, b, c, false);
    }
    if (threadIdx.x % 32 == 0 && (word_[0] | word_[1] | word_[2]) != 0) spread();
    word_[0] = word_[1] = word_[2] = 0;
  }

 private:
  // Places a window covers: 53 bits at most 112 higher leave 26 bits and the sign for 2^26 terms, 2^21 from
  // each lane.
  static constexpr int kSpan = 112;

  __device__ void add_words(uint64_t a, uint64_t b, uint64_t c, bool carry) {
    const uint64_t low = word_[0] + a;
    uint64_t over = low < a;
    word_[0] = low + carry;
    over += word_[0] < low;
    const uint64_t middle = word_[1] + b;
    const uint64_t middle_over = middle < b;
    word_[1] = middle + over;
    word_[2] += c + middle_over + (word_[1] < middle);
  }

  // A term far below the window goes to its limbs directly.
  __device__ void add_alone(const ExactSum::Term& term) {
    const uint32_t shift = term.place % 32;
    const uint64_t low = term.mantissa << shift, high = term.mantissa >> 1 >> (63 - shift);
    const int64_t sign = -int64_t(term.negative);
    int64_t* limb = limbs_.limbs + term.place / 32;
    SharedLimbs::add(limb, (int64_t(low & 0xffffffff) ^ sign) - sign);
    SharedLimbs::add(limb + 1, (int64_t(low >> 32) ^ sign) - sign);
    SharedLimbs::add(limb + 2, (int64_t(high) ^ sign) - sign);
  }

  // 192 bits in two's complement become six unsigned pieces of 32 bits and a signed one.
  __device__ void spread() const {
    const uint32_t piece[6] = {uint32_t(word_[0]),       uint32_t(word_[0] >> 32), uint32_t(word_[1]),
                               uint32_t(word_[1] >> 32), uint32_t(word_[2]),       uint32_t(word_[2] >> 32)};
    const uint32_t shift = uint32_t(base_) % 32;
    int64_t* limb = limbs_.limbs + base_ / 32;
    uint32_t below = 0;
#pragma unroll
    for (int i = 0; i < 6; ++i) {
      SharedLimbs::add(limb + i, int64_t(__funnelshift_l(below, piece[i], shift)));
      below = piece[i];
    }
    const uint32_t extension = int32_t(below) < 0 ? ~0u : 0;
    SharedLimbs::add(limb + 6, int64_t(int32_t(__funnelshift_l(below, extension, shift))));
  }

  SharedLimbs& limbs_;
  uint64_t word_[3] = {};
  int base_ = -(1 << 20);  // place of bit 0, the same in all lanes; far below every term at first
};

}  // namespace zeno::cuda
