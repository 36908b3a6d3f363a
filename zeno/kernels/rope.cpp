#include "zeno/kernels/rope.h"

#include <cmath>
#include <numbers>

namespace zeno {
namespace {

// Long wavelengths are stretched by `factor`, short ones kept, those between blended. All steps in fp32.
float llama3_frequency(float frequency, const RopeScaling& s) {
  const float wavelength = float(2 * std::numbers::pi) / frequency;
  const float longest = float(s.original_context / s.low_freq_factor);
  const float shortest = float(s.original_context / s.high_freq_factor);
  const float factor = float(s.factor);
  if (wavelength > longest) return frequency / factor;
  if (wavelength < shortest) return frequency;
  const float smooth = (float(s.original_context) / wavelength - float(s.low_freq_factor)) /
                       float(s.high_freq_factor - s.low_freq_factor);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

std::vector<float> rope_frequencies(int64_t head_dim, double theta, const RopeScaling& scaling) {
  ensure(head_dim > 0 && head_dim % 2 == 0, "[rope] head_dim: got {}, expected an even number", head_dim);
  std::vector<float> frequencies(size_t(head_dim / 2));
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    const float exponent = float(2 * i) / float(head_dim);
    float frequency = 1.0f / float(std::pow(double(float(theta)), double(exponent)));
    if (scaling.kind == RopeScaling::Kind::linear) frequency /= float(scaling.factor);
    if (scaling.kind == RopeScaling::Kind::llama3) frequency = llama3_frequency(frequency, scaling);
    frequencies[size_t(i)] = frequency;
  }
  return frequencies;
}

void rope_table(Tensor table, const std::vector<float>& frequencies) {
  const int64_t half = int64_t(frequencies.size());
  ensure(table.cols == 2 * half, "[rope] table: got {} columns, expected {}", table.cols, 2 * half);
  for (int64_t position = 0; position < table.rows; ++position) {
    float* row = table.row<float>(position);
    for (int64_t i = 0; i < half; ++i) {
      const double angle = double(float(position) * frequencies[size_t(i)]);
      row[i] = float(std::cos(angle));
      row[half + i] = float(std::sin(angle));
    }
  }
}

}  // namespace zeno
