// A pre-norm transformer block: x + attention(norm(x)), then that + mlp(norm(that)). One class serves GPT-2,
// Llama, Mistral and Qwen: what differs is data. Owns no memory; all calls are async on the given stream; a
// block is immutable, so any thread may use it.
//
// Recompute: none keeps every intermediate; selective keeps the results of matmuls and attention (qkv before
// q/k-norm and rope, attention output and lse, the middle of the residual stream, up) and computes norms,
// q/k-norm + rope and the activation again in backward. The bits are the same.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "zeno/nn/layer.h"
#include "zeno/nn/lora.h"
#include "zeno/nn/norm.h"
#include "zeno/nn/rope_table.h"

namespace zeno::nn {

// Where each parameter comes from in a Hugging Face folder. `up` is gate and up fused (gate rows first), or
// fc.
struct BlockFiles {
  std::vector<FileSlice> attn_norm, attn_norm_bias;
  std::vector<FileSlice> qkv, qkv_bias, q_norm, k_norm, out, out_bias;
  std::vector<FileSlice> mlp_norm, mlp_norm_bias;
  std::vector<FileSlice> up, up_bias, down, down_bias;
};

// Legend: C = hidden, H = heads, G = kv_heads, D = head_dim, F = intermediate.
struct BlockOptions {
  using Norm = nn::Norm;
  enum class Mlp { swiglu, gelu_tanh, gelu_exact };

  int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0;
  Norm norm = Norm::rms;
  float norm_eps = 1e-5f;
  Mlp mlp = Mlp::swiglu;
  bool qkv_bias = false, out_bias = false, mlp_bias = false;  // mlp_bias: up and down
  bool qk_norm = false;                   // RMSNorm of each query and key head, before rope
  int64_t window = 0;                     // sliding window; 0 = no limit
  std::shared_ptr<const RopeTable> rope;  // null: none (learned positions)
  std::string name;                       // "blocks.3"
  BlockFiles files;
  float init_std = 0.02f;
  float out_init_std = 0.02f;               // projections that end in the residual stream: out and down
  std::shared_ptr<const LoraOptions> lora;  // adapters of its linear layers; null: none, all is trained
};

// Parameters, in this order (those that the options ask for): <name>.attn_norm.weight, .attn_norm.bias,
// .attn.qkv.weight [(H+2G)·D, C], .attn.qkv.bias, .attn.q_norm.weight [1, D], .attn.k_norm.weight,
// .attn.out.weight [C, H·D], .attn.out.bias, .mlp_norm.weight, .mlp_norm.bias, .mlp.up.weight [2F or F, C],
// .mlp.up.bias, .mlp.down.weight [C, F], .mlp.down.bias. Each half ends with the parameters of its adapters
// (lora.h).
std::unique_ptr<Layer> make_block(BlockOptions options);

}  // namespace zeno::nn
