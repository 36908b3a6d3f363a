// What training adds at random: dropout, and noise on embeddings. Every number is a function of (key, site,
// row, column), so that recomputing, cutting rows into parts and any device give the same bits. Async on the
// stream.
#pragma once

#include <cstdint>

#include "zeno/base/host_device.h"
#include "zeno/base/rng.h"
#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"

namespace zeno {

struct NoiseSource {
  Tensor key;             // i64 [1, 1] on the device: of a step and micro-batch
  uint64_t site = 0;      // what draws: two with the same site draw the same
  int64_t first_row = 0;  // row of the micro-batch that the tensor begins with
};

struct Dropout {
  Tensor x;  // [R, C]
  Tensor y;  // [R, C]; may be x
  NoiseSource noise;
  float probability = 0;    // of becoming zero; the rest is divided by 1 - probability
  bool accumulate = false;  // y += instead of y =
};
void dropout(StreamRef stream, const Dropout& op);

struct UniformNoise {
  Tensor y;  // [R, C], += uniform in [-size, size)
  NoiseSource noise;
  float size = 0;
};
void add_uniform_noise(StreamRef stream, const UniformNoise& op);

// For the kernels: the random bits of one row.
ZENO_HOST_DEVICE inline uint64_t noise_key(uint64_t key, uint64_t site, int64_t row) {
  return random_bits(key, site, uint64_t(row));
}
// Bits below it drop an element.
inline uint32_t dropout_threshold(float probability) { return uint32_t(double(probability) * 0x1p32); }
// 24 of the bits as a number in [-1, 1).
ZENO_HOST_DEVICE inline float noise_unit(uint32_t bits) {
  return float(int32_t(bits >> 8) - (1 << 23)) * 0x1p-23f;
}

}  // namespace zeno
