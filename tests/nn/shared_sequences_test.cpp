// A block over sequences that several ranks share: ranks without an engine, whose joints are passed by hand.
// Against one rank that has the whole sequences.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "tests/nn/tiny_model.h"
#include "tests/support/expect_error.h"
#include "zeno/nn/block.h"

namespace zeno::test {
namespace {

using nn::BlockOptions;
using nn::Recompute;

constexpr int64_t kSharedHidden = 32, kSharedSequences = 2, kSharedTokens = 12;

struct SharedFamily {
  std::string name;
  BlockOptions block;
  int ranks;
};

std::vector<SharedFamily> shared_families() {
  const BlockOptions base{
      .hidden = kSharedHidden, .heads = 4, .kv_heads = 2, .head_dim = 8, .intermediate = 40};
  SharedFamily llama{"llama", base, 2}, copied{"copied_key_heads", base, 4}, gpt2{"gpt2", base, 4};
  gpt2.block.kv_heads = 4;
  gpt2.block.norm = nn::Norm::layer;
  gpt2.block.mlp = BlockOptions::Mlp::gelu_tanh;
  gpt2.block.qkv_bias = gpt2.block.out_bias = gpt2.block.mlp_bias = true;
  SharedFamily qwen3{"qwen3", base, 2};
  qwen3.block.qk_norm = true;
  qwen3.block.window = 4;
  SharedFamily three{"three_heads", base, 3};
  three.block.heads = three.block.kv_heads = 3;
  for (SharedFamily* family : {&llama, &copied, &qwen3, &three})
    family->block.rope = std::make_shared<nn::RopeTable>(kSharedTokens, family->block.head_dim, 10000.0);
  return {llama, copied, gpt2, qwen3, three};
}

Memory shared_values(DType dtype, int64_t rows, int64_t cols, uint64_t seed) {
  Memory memory(dtype, rows, cols);
  std::vector<float> values;
  for (int64_t i = 0; i < rows * cols; ++i) values.push_back(float(random_normal(seed, 1, uint64_t(i))));
  from_floats(values, memory.view());
  return memory;
}

// One rank's half of the work: its rows of x and dy, and what it makes of them.
class RankOfBlock {
 public:
  RankOfBlock(const BlockOptions& options, int ranks, int rank, Tensor x, Tensor dy, bool documents)
      : layer_(nn::make_block(options)),
        shape_{.batch = kSharedSequences, .seq = kSharedTokens / ranks, .context = ranks},
        compute_(x.dtype),
        x_(mine(x, rank)),
        dy_(mine(dy, rank)),
        y_(compute_, shape_.rows(), kSharedHidden) {
    for (int64_t row = 0; row < kSharedSequences * kSharedTokens; ++row) {
      const int32_t token = int32_t(row % kSharedTokens), start = documents ? token / 5 * 5 : 0;
      doc_start_.push_back(start);
      if (row % kSharedTokens / shape_.seq == rank) positions_.push_back(token - start);
    }
    for (const nn::Parameter& p : layer_->parameters()) {
      const uint64_t seed = params_.size() + 11;
      params_.push_back(shared_values(compute_, p.rows, p.cols, seed));
      grads_.emplace_back(DType::f32, p.rows, p.cols);
      grads_.back().zero();
    }
  }

  int parts() const { return layer_->parts(shape_); }
  void keep(Recompute recompute) {
    recompute_ = recompute;
    saved_.emplace(layer_->sizes(shape_, compute_, recompute).saved);
  }
  void forget() { saved_.reset(); }

  void forward(int part) {
    if (part == 0) new_workspace();
    layer_->forward({.stream = stream_.ref(),
                     .batch = batch(),
                     .params = views(params_),
                     .x = x_.view(),
                     .y = y_.view(),
                     .saved = saved(),
                     .workspace = workspace_->bytes(),
                     .cache = {},
                     .part = part},
                    recompute_);
    stream_.sync();
  }
  void backward(int part) {
    if (part == 0) new_workspace();
    const std::vector<Tensor> grads = views(grads_);
    layer_->backward({.stream = stream_.ref(),
                      .batch = batch(),
                      .params = views(params_),
                      .grads = grads,
                      .x = x_.view(),
                      .dy = dy_.view(),
                      .dx = dy_.view(),
                      .saved = saved(),
                      .workspace = workspace_->bytes(),
                      .fresh = true,
                      .part = part},
                     recompute_);
    stream_.sync();
  }
  nn::Joint joint(bool backward, int part) const {
    return layer_->joint({.shape = shape_,
                          .compute = compute_,
                          .recompute = recompute_,
                          .backward = backward,
                          .saved = saved(),
                          .workspace = workspace_->bytes(),
                          .part = part});
  }
  nn::Joint sizes_of_joint(bool backward, int part) const {
    return layer_->joint({.shape = shape_, .compute = compute_, .backward = backward, .part = part});
  }

  std::vector<float> y() const { return to_floats(y_.view()); }
  std::vector<float> dx() const { return to_floats(dy_.view()); }
  std::vector<float> gradient(size_t param) const { return to_floats(grads_[param].view()); }
  size_t params() const { return params_.size(); }

 private:
  Memory mine(Tensor whole, int rank) const {
    Memory rows(whole.dtype, shape_.rows(), whole.cols);
    const Tensor view = rows.view();
    for (int64_t b = 0; b < kSharedSequences; ++b) {
      const Tensor from = whole.slice(b * kSharedTokens + rank * shape_.seq, shape_.seq);
      std::memcpy(view.slice(b * shape_.seq, shape_.seq).data, from.data, from.bytes());
    }
    return rows;
  }
  void new_workspace() { workspace_.emplace(layer_->sizes(shape_, compute_, recompute_).workspace); }
  Tensor saved() const { return saved_ ? saved_->bytes() : Tensor{}; }
  static std::vector<Tensor> views(const std::vector<Memory>& list) {
    std::vector<Tensor> all;
    for (const Memory& memory : list) all.push_back(memory.view());
    return all;
  }
  nn::Batch batch() const {
    const auto view = [](const std::vector<int32_t>& v) {
      return Tensor{const_cast<int32_t*>(v.data()), DType::i32, 1, int64_t(v.size())};
    };
    nn::Batch batch{.shape = shape_};
    batch.positions = view(positions_);
    batch.doc_start = view(doc_start_);
    return batch;
  }

  std::unique_ptr<nn::Layer> layer_;
  nn::BatchShape shape_;
  DType compute_;
  Recompute recompute_ = Recompute::none;
  Memory x_, dy_, y_;
  std::vector<int32_t> positions_, doc_start_;
  std::vector<Memory> params_, grads_;
  std::optional<Memory> saved_, workspace_;
  mutable KernelStream stream_{2};
};

using Ranks = std::vector<std::unique_ptr<RankOfBlock>>;

// Of every sequence, slice p of what rank r sends is slice r of what p receives.
void pass_joint(const Ranks& ranks, bool backward, int part) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    const nn::Joint from = ranks[r]->joint(backward, part), sizes = ranks[r]->sizes_of_joint(backward, part);
    EXPECT_EQ(from.send.count(), sizes.send.count());
    EXPECT_EQ(from.recv.count(), from.send.count());
    for (size_t p = 0; p < ranks.size(); ++p) {
      const nn::Joint to = ranks[p]->joint(backward, part);
      const int64_t n = int64_t(ranks.size()), rows = from.send.rows / kSharedSequences / n;
      for (int64_t b = 0; b < kSharedSequences; ++b) {
        const Tensor slice = from.send.slice((b * n + int64_t(p)) * rows, rows);
        std::memcpy(to.recv.slice((b * n + int64_t(r)) * rows, rows).data, slice.data, slice.bytes());
      }
    }
  }
}

void run_ranks(const Ranks& ranks, bool backward) {
  const int parts = ranks[0]->parts();
  for (int part = 0; part < parts; ++part) {
    for (const auto& rank : ranks) backward ? rank->backward(part) : rank->forward(part);
    if (part + 1 < parts) pass_joint(ranks, backward, part);
  }
}

Ranks make_ranks(const SharedFamily& family, int count, DType dtype, bool documents) {
  const Memory x = shared_values(dtype, kSharedSequences * kSharedTokens, kSharedHidden, 1),
               dy = shared_values(dtype, kSharedSequences * kSharedTokens, kSharedHidden, 2);
  Ranks ranks;
  for (int r = 0; r < count; ++r)
    ranks.push_back(std::make_unique<RankOfBlock>(family.block, count, r, x.view(), dy.view(), documents));
  return ranks;
}

// Rows of all ranks, in the order of the sequences.
template <class Values>
std::vector<float> together(const Ranks& ranks, const Values& values) {
  const size_t slice = size_t(kSharedTokens) / ranks.size() * size_t(kSharedHidden);
  std::vector<float> all;
  for (size_t b = 0; b < size_t(kSharedSequences); ++b) {
    for (const auto& rank : ranks) {
      const std::vector<float> mine = values(*rank);
      all.insert(all.end(), mine.begin() + int64_t(b * slice), mine.begin() + int64_t((b + 1) * slice));
    }
  }
  return all;
}

class SharedSequences : public ::testing::TestWithParam<SharedFamily> {};

TEST_P(SharedSequences, ABlockOverSeveralRanksIsThatOverOne) {
  const SharedFamily& family = GetParam();
  const bool copies = family.block.kv_heads < family.ranks;  // gradients of their keys are rounded once more
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (bool documents : {false, true}) {
      for (Recompute keep : {Recompute::none, Recompute::selective}) {
        const Ranks whole = make_ranks(family, 1, dtype, documents),
                    ranks = make_ranks(family, family.ranks, dtype, documents);
        for (const Ranks* some : {&whole, &ranks}) {
          for (const auto& rank : *some) rank->keep(keep);
          run_ranks(*some, false);
          run_ranks(*some, true);
        }
        const auto y = [](const RankOfBlock& rank) { return rank.y(); };
        const auto dx = [](const RankOfBlock& rank) { return rank.dx(); };
        EXPECT_EQ(together(ranks, y), whole[0]->y());
        const double slack = dtype == DType::f32 ? 1e-5 : 2e-2;
        if (copies) {
          EXPECT_LT(relative_error(together(ranks, dx), whole[0]->dx()), slack);
        } else {
          EXPECT_EQ(together(ranks, dx), whole[0]->dx());
        }
        for (size_t p = 0; p < whole[0]->params(); ++p) {
          std::vector<float> sum = ranks[0]->gradient(p);
          for (size_t r = 1; r < ranks.size(); ++r) {
            const std::vector<float> more = ranks[r]->gradient(p);
            for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
          }
          EXPECT_LT(relative_error(sum, whole[0]->gradient(p)), slack) << "parameter " << p;
        }
      }
    }
  }
}

TEST_P(SharedSequences, EvaluationKeepsNothingAndGivesTheSame) {
  const Ranks whole = make_ranks(GetParam(), 1, DType::f32, true),
              ranks = make_ranks(GetParam(), GetParam().ranks, DType::f32, true);
  run_ranks(whole, false);
  run_ranks(ranks, false);
  EXPECT_EQ(together(ranks, [](const RankOfBlock& rank) { return rank.y(); }), whole[0]->y());
}

INSTANTIATE_TEST_SUITE_P(Families, SharedSequences, ::testing::ValuesIn(shared_families()),
                         [](const auto& family) { return family.param.name; });

TEST(SharedHeads, HeadsThatDoNotDivideAreRefusedByName) {
  BlockOptions options{.hidden = 32, .heads = 6, .kv_heads = 2, .head_dim = 8, .intermediate = 40};
  options.name = "blocks.0";
  expect_error(ErrorKind::usage, {"6 query heads and 2 key heads"},
               [&] { nn::make_block(options)->parts({.batch = 1, .seq = 4, .context = 3}); });
  expect_error(ErrorKind::usage, {"4 ranks"},
               [&] { nn::make_block(options)->parts({.batch = 1, .seq = 4, .context = 4}); });
}

}  // namespace
}  // namespace zeno::test
