// Small models of the three shapes that matter (GPT-2: LayerNorm, biases, learned positions, tied; Llama:
// grouped heads, untied; Qwen3: q/k-norm, tied) built straight from layers, and deterministic batches for
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "zeno/base/rng.h"
#include "zeno/nn/block.h"
#include "zeno/nn/embedding.h"
#include "zeno/nn/lm_head.h"
#include "zeno/zero/engine.h"

namespace zeno::test {

enum class Family { gpt2, llama, qwen3 };

struct TinyShape {
  int64_t hidden = 32, heads = 4, blocks = 2, vocab = 61, max_seq = 32;
  std::shared_ptr<const nn::LoraOptions> lora;  // then all else is frozen
  double neftune_alpha = 0;
};

// Modules as Hugging Face names them; two of them are several in one weight.
inline void name_modules(nn::BlockOptions& block) {
  const int64_t q = block.heads * block.head_dim, kv = block.kv_heads * block.head_dim;
  const int64_t F = block.intermediate;
  const auto at = [&](const char* module) { return block.name + "." + module + ".weight"; };
  block.files.qkv = {{at("q"), 0, q}, {at("k"), q, kv}, {at("v"), q + kv, kv}};
  block.files.out = {{at("o"), 0, block.hidden}};
  block.files.up = {{at("up"), 0, F}};
  if (block.mlp == nn::BlockOptions::Mlp::swiglu) block.files.up = {{at("gate"), 0, F}, {at("up"), F, F}};
  block.files.down = {{at("down"), 0, block.hidden}};
}

inline nn::LayerList tiny_decoder(Family family, const TinyShape& shape = {}) {
  const bool gpt2 = family == Family::gpt2, tied = family != Family::llama;
  const int64_t head_dim = shape.hidden / shape.heads;
  const nn::Norm norm = gpt2 ? nn::Norm::layer : nn::Norm::rms;
  nn::LayerList model;
  model.hidden = shape.hidden;
  model.vocab = shape.vocab;
  model.layers.push_back(nn::make_embedding({.vocab = shape.vocab,
                                             .hidden = shape.hidden,
                                             .positions = gpt2 ? shape.max_seq : 0,
                                             .tied = tied,
                                             .init_std = 0.2f,
                                             .lora = shape.lora,
                                             .neftune_alpha = shape.neftune_alpha}));
  const auto rope = gpt2 ? nullptr : std::make_shared<nn::RopeTable>(shape.max_seq, head_dim, 10000.0);
  for (int64_t i = 0; i < shape.blocks; ++i) {
    nn::BlockOptions block;
    block.hidden = shape.hidden;
    block.heads = shape.heads;
    block.kv_heads = gpt2 ? shape.heads : shape.heads / 2;
    block.head_dim = head_dim;
    block.intermediate = shape.hidden * 2;
    block.norm = norm;
    block.mlp = gpt2 ? nn::BlockOptions::Mlp::gelu_tanh : nn::BlockOptions::Mlp::swiglu;
    block.qkv_bias = block.out_bias = block.mlp_bias = gpt2;
    block.qk_norm = family == Family::qwen3;
    block.rope = rope;
    block.name = "blocks." + std::to_string(i);
    block.init_std = block.out_init_std = 0.2f;
    block.lora = shape.lora;
    name_modules(block);
    model.layers.push_back(nn::make_block(std::move(block)));
  }
  model.loss = nn::make_lm_head({.hidden = shape.hidden,
                                 .vocab = shape.vocab,
                                 .norm = norm,
                                 .weight_name = tied ? "embed.weight" : "lm_head.weight",
                                 .init_std = 0.2f,
                                 .lora = shape.lora});
  return model;
}

// First values as a function of name and index, as a real run would initialise.
inline void init_values(const nn::Parameter& param, int64_t begin, std::span<float> out) {
  const uint64_t stream = std::hash<std::string>{}(param.name);
  for (size_t i = 0; i < out.size(); ++i) {
    const double noise = random_normal(7, stream, uint64_t(begin) + i);
    switch (param.init.kind) {
      case nn::Init::Kind::zeros:
        out[i] = float(0.05 * noise);
        break;
      case nn::Init::Kind::ones:
        out[i] = float(1 + 0.05 * noise);
        break;
      case nn::Init::Kind::uniform:
        out[i] = float(double(param.init.bound) * noise);
        break;
      case nn::Init::Kind::normal:
        out[i] = float(double(param.init.stddev) * noise);
        break;
    }
  }
}

// Owns the arrays of one micro-batch; the logical id fixes its contents, whatever rank runs it.
struct OwnedBatch {
  std::vector<int32_t> tokens, targets, positions, doc_start, valid_rows;

  zero::MicroBatch view() const { return {tokens, targets, positions, doc_start, valid_rows}; }
};

inline OwnedBatch make_batch(nn::BatchShape shape, int64_t vocab, int64_t step, int64_t logical_id) {
  OwnedBatch batch;
  for (int64_t r = 0; r < shape.rows(); ++r) {
    const int64_t t = r % shape.seq, cut = shape.seq / 3;  // two documents per sequence
    const uint64_t index = uint64_t((step * 1000 + logical_id) * shape.rows() + r);
    const auto draw = [&](uint64_t stream) {
      return int32_t(random_bits(3, stream, index) % uint64_t(vocab));
    };
    batch.tokens.push_back(draw(1));
    batch.targets.push_back(random_bits(3, 3, index) % 5 == 0 ? -1 : draw(2));
    batch.doc_start.push_back(int32_t(t < cut ? 0 : cut));
    batch.positions.push_back(int32_t(t < cut ? t : t - cut));
    if (batch.targets.back() >= 0) batch.valid_rows.push_back(int32_t(r));
  }
  return batch;
}

// The tokens of rank `index` of `ranks` that share the sequences of a batch with this shape.
inline OwnedBatch cut_batch(const OwnedBatch& whole, nn::BatchShape shape, int ranks, int index) {
  OwnedBatch mine{.doc_start = whole.doc_start};
  const int64_t slice = shape.seq / ranks;
  for (int64_t r = 0; r < shape.rows(); ++r) {
    if (r % shape.seq / slice != index) continue;
    if (whole.targets[size_t(r)] >= 0) mine.valid_rows.push_back(int32_t(mine.tokens.size()));
    mine.tokens.push_back(whole.tokens[size_t(r)]);
    mine.targets.push_back(whole.targets[size_t(r)]);
    mine.positions.push_back(whole.positions[size_t(r)]);
  }
  return mine;
}

}  // namespace zeno::test
