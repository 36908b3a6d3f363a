// Models that were measured or published, by their shapes: layers without weights.
#pragma once

#include "zeno/model/init.h"
#include "zeno/model/layers.h"

namespace zeno::test {

inline nn::LayerList shape_of(const model::InitOptions& options, int64_t seq) {
  model::InitOptions o = options;
  o.max_positions = seq;
  return model::build_layers(model::make_config(o), seq);
}

inline model::InitOptions llama(int64_t hidden, int64_t layers, int64_t heads, int64_t kv_heads,
                                int64_t head_dim, int64_t intermediate, int64_t vocab, bool tied) {
  return {.arch = model::Arch::llama,
          .hidden = hidden,
          .layers = layers,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .intermediate = intermediate,
          .vocab = vocab,
          .tied = tied};
}

inline model::InitOptions qwen2(int64_t hidden, int64_t layers, int64_t heads, int64_t kv_heads,
                                int64_t intermediate, int64_t vocab, bool tied) {
  model::InitOptions o = llama(hidden, layers, heads, kv_heads, 0, intermediate, vocab, tied);
  o.arch = model::Arch::qwen2;
  return o;
}

inline model::InitOptions gpt(int64_t hidden, int64_t layers, int64_t heads, int64_t vocab = 50368) {
  return {.arch = model::Arch::gpt2, .hidden = hidden, .layers = layers, .heads = heads, .vocab = vocab};
}

inline const model::InitOptions kLlama1B = llama(2048, 16, 32, 8, 64, 8192, 128256, true),
                                kLlama3B = llama(3072, 28, 24, 8, 128, 8192, 128256, true),
                                kLlama8B = llama(4096, 32, 32, 8, 128, 14336, 128256, false),
                                kQwenHalfB = qwen2(896, 24, 14, 2, 4864, 151936, true),
                                kQwen1B5 = qwen2(1536, 28, 12, 2, 8960, 151936, true),
                                kQwen3B = qwen2(2048, 36, 16, 2, 11008, 151936, true),
                                kQwen7B = qwen2(3584, 28, 28, 4, 18944, 152064, false),
                                kQwen14B = qwen2(5120, 48, 40, 8, 13824, 152064, false);

}  // namespace zeno::test
