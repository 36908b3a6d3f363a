// Rotary position embedding, the half-split form of Hugging Face: within a head of D values, element i pairs
// with i + D/2 and turns by position · frequency[i].
#pragma once

#include <vector>

#include "zeno/device/stream.h"
#include "zeno/tensor/tensor.h"

namespace zeno {

struct RopeScaling {
  enum class Kind { none, linear, llama3 };
  Kind kind = Kind::none;
  double factor = 1;               // linear and llama3
  double low_freq_factor = 1;      // llama3
  double high_freq_factor = 4;     // llama3
  double original_context = 8192;  // llama3
};

// D/2 inverse frequencies, computed as transformers does (fp32 steps), so that parity holds to the last
// digits.
std::vector<float> rope_frequencies(int64_t head_dim, double theta, const RopeScaling& scaling);

// Table of cos and sin: f32 [positions, D], first D/2 cosines then D/2 sines. Blocking, run once at start.
void rope_table(Tensor table, const std::vector<float>& frequencies);

struct Rope {
  Tensor x;          // [R, heads·D] view into a packed matrix, rotated in place
  Tensor positions;  // i32 [1, R]
  Tensor table;      // f32 [positions, D]
  int64_t head_dim = 0;
  bool inverse = false;  // the backward pass turns gradients the other way
};

void rope(StreamRef stream, const Rope& op);

}  // namespace zeno
