// The forward pass over a cache against the whole sequence at once. Layers and kernels take rows one by one,
// so the bits are equal: random prompts of 1 to 40 tokens, several sequences, in every way to cut them into
// calls.
#include <gtest/gtest.h>

#include "tests/nn/tiny_model.h"
#include "zeno/nn/block.h"
#include "zeno/nn/embedding.h"
#include "zeno/nn/lm_head.h"

namespace zeno::test {
namespace {

using nn::BlockOptions;

constexpr int64_t kDecodeVocab = 50, kDecodeHidden = 48, kCapacity = 48;

struct DecodeFamily {
  std::string name;
  BlockOptions block;
  bool rope;
};

std::vector<DecodeFamily> decode_families() {
  const BlockOptions base{
      .hidden = kDecodeHidden, .heads = 6, .kv_heads = 6, .head_dim = 8, .intermediate = 64};
  DecodeFamily gpt{"layernorm_gelu", base, false}, grouped{"grouped", base, true},
      window{"window", base, true}, normed{"qk_norm", base, true};
  gpt.block.norm = nn::Norm::layer;
  gpt.block.mlp = BlockOptions::Mlp::gelu_tanh;
  gpt.block.qkv_bias = gpt.block.out_bias = gpt.block.mlp_bias = true;
  grouped.block.kv_heads = 2;
  window.block.kv_heads = 1;
  window.block.window = 9;
  normed.block.heads = 4;
  normed.block.kv_heads = 2;
  normed.block.head_dim = 16;
  normed.block.qk_norm = true;
  return {gpt, grouped, window, normed};
}

// Two blocks, embedding and head, with weights of their own; runs tokens with a cache or without.
class Model {
 public:
  Model(const DecodeFamily& family, DType dtype, int64_t sequences)
      : dtype_(dtype), stream_(2), shape_{sequences, kCapacity} {
    BlockOptions o = family.block;
    if (family.rope) o.rope = std::make_shared<nn::RopeTable>(kCapacity, o.head_dim, 10000);
    layers_.push_back(nn::make_embedding({.vocab = kDecodeVocab,
                                          .hidden = kDecodeHidden,
                                          .positions = family.rope ? 0 : kCapacity,
                                          .table = {},
                                          .position_table = {}}));
    for (int i = 0; i < 2; ++i) {
      o.name = fmt::format("blocks.{}", i);
      layers_.push_back(nn::make_block(o));
    }
    head_ = nn::make_lm_head({.hidden = kDecodeHidden,
                              .vocab = kDecodeVocab,
                              .norm = o.norm,
                              .norm_files = {},
                              .norm_bias_files = {},
                              .weight_files = {}});
    for (const auto& layer : layers_) add(layer->parameters());
    add(head_->parameters());
    for (const auto& layer : layers_) caches_.emplace_back(layer->cache_bytes(shape_, dtype_));
  }

  // Logits of every row [batch · seq, V]. Empty slots: without the cache, positions from 0.
  std::vector<float> logits(int64_t batch, int64_t seq, std::vector<int32_t> tokens,
                            std::vector<int32_t> positions, std::vector<int32_t> slots) {
    const int64_t rows = batch * seq;
    nn::Batch b{.shape = {.batch = batch, .seq = seq}};
    b.tokens = {tokens.data(), DType::i32, 1, rows};
    b.positions = {positions.data(), DType::i32, 1, rows};
    b.slots = {slots.data(), DType::i32, 1, batch};
    b.cache = shape_;
    Memory x(dtype_, rows, kDecodeHidden), y(dtype_, rows, kDecodeHidden),
        out(DType::f32, rows, kDecodeVocab);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Memory work(layers_[i]->sizes(b.shape, dtype_, nn::Recompute::full).workspace);
      layers_[i]->forward({.stream = stream_.ref(),
                           .batch = b,
                           .params = params_[i],
                           .x = i == 0 ? Tensor{} : x.view(),
                           .y = y.view(),
                           .saved = {},
                           .workspace = work.bytes(),
                           .cache = slots.empty() ? Tensor{} : caches_[i].bytes()},
                          nn::Recompute::full);
      stream_.sync();
      work.check_guard();
      caches_[i].check_guard();
      std::swap(x, y);
    }
    const Memory work(head_->logits_workspace(rows, dtype_));
    head_->logits({.stream = stream_.ref(),
                   .params = params_.back(),
                   .x = x.view(),
                   .logits = out.view(),
                   .workspace = work.bytes()});
    stream_.sync();
    work.check_guard();
    return to_floats(out.view());
  }

 private:
  void add(const std::vector<nn::Parameter>& list) {
    params_.emplace_back();
    for (const nn::Parameter& p : list) {
      weights_.emplace_back(dtype_, p.rows, p.cols);
      std::vector<float> values;
      for (int64_t i = 0; i < p.count(); ++i) {
        const double noise = random_normal(weights_.size(), 4, uint64_t(i));
        values.push_back(float(p.rows > 1 ? 0.2 * noise : 1 + 0.1 * noise));
      }
      from_floats(values, weights_.back().view());
      params_.back().push_back(weights_.back().view());
    }
  }

  DType dtype_;
  KernelStream stream_;
  nn::CacheShape shape_;
  std::vector<std::unique_ptr<nn::Layer>> layers_;
  std::unique_ptr<nn::LossLayer> head_;
  std::vector<Memory> weights_, caches_;
  std::vector<std::vector<Tensor>> params_;
};

std::vector<int32_t> counting(int64_t begin, int64_t count) {
  std::vector<int32_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), int32_t(begin));
  return all;
}

std::vector<int32_t> random_tokens(uint64_t seed, int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(int32_t(random_bits(seed, 5, uint64_t(i)) % kDecodeVocab));
  return tokens;
}

class Decode : public testing::TestWithParam<DecodeFamily> {};

TEST_P(Decode, HasTheBitsOfTheWholeSequence) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Model model(GetParam(), dtype, 2);
    for (int64_t length = 1; length <= 40; length += dtype == DType::f32 ? 3 : 13) {
      const std::vector<int32_t> tokens = random_tokens(uint64_t(length), length);
      const std::vector<float> whole = model.logits(1, length, tokens, counting(0, length), {});
      std::vector<float> parts;
      // Parts of random length, single tokens among them.
      for (int64_t begin = 0; begin < length;) {
        const int64_t some = std::min<int64_t>(
            length - begin, 1 + int64_t(random_bits(7, uint64_t(length), uint64_t(begin)) % 6));
        const std::vector<int32_t> part(tokens.begin() + begin, tokens.begin() + begin + some);
        const std::vector<float> logits = model.logits(1, some, part, counting(begin, some), {1});
        parts.insert(parts.end(), logits.begin(), logits.end());
        begin += some;
      }
      ASSERT_EQ(parts, whole) << name_of(dtype) << ", " << length << " tokens";
    }
  }
}

TEST_P(Decode, SequencesOfDifferentLengthStepTogether) {
  constexpr int64_t kBatch = 3, kSteps = 6;
  Model model(GetParam(), DType::f32, kBatch);
  const int64_t lengths[] = {1, 17, 30};
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<float>> expected;
  for (int64_t b = 0; b < kBatch; ++b) {
    tokens.push_back(random_tokens(uint64_t(40 + b), lengths[b] + kSteps));
    expected.push_back(
        model.logits(1, lengths[b] + kSteps, tokens.back(), counting(0, lengths[b] + kSteps), {}));
    const std::vector<int32_t> prompt(tokens.back().begin(), tokens.back().begin() + lengths[b]);
    model.logits(1, lengths[b], prompt, counting(0, lengths[b]), {int32_t(b)});
  }
  for (int64_t step = 0; step < kSteps; ++step) {
    std::vector<int32_t> next, positions;
    for (int64_t b = kBatch - 1; b >= 0; --b) {
      positions.push_back(int32_t(lengths[b] + step));
      next.push_back(tokens[size_t(b)][size_t(positions.back())]);
    }
    const std::vector<float> logits = model.logits(kBatch, 1, next, positions, {2, 1, 0});
    for (int64_t b = 0; b < kBatch; ++b) {
      const auto ours = logits.begin() + (kBatch - 1 - b) * kDecodeVocab;
      const auto theirs = expected[size_t(b)].begin() + (lengths[b] + step) * kDecodeVocab;
      ASSERT_TRUE(std::equal(ours, ours + kDecodeVocab, theirs)) << "sequence " << b << ", step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Decode, testing::ValuesIn(decode_families()),
                         [](const auto& family) { return family.param.name; });

}  // namespace
}  // namespace zeno::test
