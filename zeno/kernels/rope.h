// Rotary position embedding, the half-split form of Hugging Face: within a head of D values, element i pairs
// with i + D/2 and turns by position · frequency[i].
#pragma once

#include <vector>

#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"

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

// Turns the query and key heads of a packed matrix, after an optional RMSNorm of each head (QK-norm): its
// result is rounded to the dtype of x, then turned.
struct RopeForward {
  Tensor x;          // [R, heads·D]: queries, keys, and heads that pass (values), if any
  Tensor y;          // [R, heads·D]; may be x: then values are not touched
  Tensor positions;  // i32 [1, R]
  Tensor table;      // f32 [positions, D]
  int64_t q_heads = 0, k_heads = 0, head_dim = 0;
  // QK-norm, when there are weights; both in the dtype of x or in fp32.
  Tensor q_weight, k_weight;  // [1, D]
  Tensor rstd;                // f32 [R, q_heads + k_heads], kept for backward
  Tensor raw;  // optional [R, (q_heads + k_heads)·D]: gets x, which backward needs and y may cover
  float eps = 1e-6f;
};

struct RopeBackward {
  Tensor dx;  // [R, heads·D]: the gradient of y becomes that of x
  Tensor positions, table;
  int64_t q_heads = 0, k_heads = 0, head_dim = 0;
  // With QK-norm:
  Tensor x;  // [R, heads·D], as forward got it
  Tensor q_weight, k_weight, rstd;
  Tensor dq_weight, dk_weight;  // [1, D] in the gradient dtype, +=, summed in fp32; empty view: frozen
};

void rope_forward(StreamRef stream, const RopeForward& op);
void rope_backward(StreamRef stream, const RopeBackward& op);

}  // namespace zeno
