// A model of one's own against the library, trained under ZeRO stage 3 on two ranks: a token-mixing MLP that
// learns to copy the token two places back. Layers declare parameters and compute; the engine shards, gathers
// and updates.
#include <cmath>
#include <cstdio>

#include "zeno/zeno.h"

using namespace zeno;

constexpr int64_t kHidden = 64, kVocab = 50, kBatch = 8, kSeq = 16;

// y[t] = x[t] + W2 · gelu(W1 · x[t-2]): the hidden row two places back is all it can see.
class ShiftMlp final : public nn::Layer {
 public:
  std::string name() const override { return "mlp"; }
  std::vector<nn::Parameter> parameters() const override {
    return {{.name = "mlp.w1", .rows = 2 * kHidden, .cols = kHidden},
            {.name = "mlp.w2", .rows = kHidden, .cols = 2 * kHidden}};
  }
  nn::LayerSizes sizes(nn::BatchShape shape, DType compute, nn::Recompute) const override {
    const size_t wide = size_t(shape.rows() * 2 * kHidden) * size_of(compute);
    return {.saved = 2 * wide, .workspace = 2 * wide};
  }
  void forward(const nn::ForwardArgs& a, nn::Recompute) const override {
    const Tensor keep = a.saved ? a.saved : a.workspace;
    const Tensor before = part(keep, a.x, 0), after = part(keep, a.x, 1);
    matmul(a.stream, {.a = a.x, .b = a.params[0], .c = before, .transpose_b = true});
    gelu_forward(a.stream, Gelu::tanh, before, after);
    // Row r takes the MLP of row r-2 (and, across the start of a sequence, of its neighbour: noise to learn
    // to ignore).
    matmul(a.stream, {.a = after.slice(0, a.x.rows - 2),
                      .b = a.params[1],
                      .c = a.y.slice(2, a.x.rows - 2),
                      .transpose_b = true,
                      .residual = a.x.slice(2, a.x.rows - 2)});
    a.stream.launch([x = a.x, y = a.y](Workers&) { std::copy_n(x.as<float>(), 2 * kHidden, y.as<float>()); });
  }
  void backward(const nn::BackwardArgs& a, nn::Recompute) const override {
    const int64_t rows = a.x.rows - 2;
    const Tensor before = part(a.saved, a.x, 0), after = part(a.saved, a.x, 1), d = part(a.workspace, a.x, 0);
    const Tensor dy = a.dy.slice(2, rows), d_head = d.slice(0, rows);
    matmul(a.stream,
           {.a = dy, .b = after.slice(0, rows), .c = a.grads[1], .transpose_a = true, .accumulate = true});
    matmul(a.stream, {.a = dy, .b = a.params[1], .c = d_head});
    gelu_backward(a.stream, Gelu::tanh, before.slice(0, rows), d_head, d_head);
    matmul(a.stream,
           {.a = d_head, .b = a.x.slice(0, rows), .c = a.grads[0], .transpose_a = true, .accumulate = true});
    matmul(a.stream,
           {.a = d_head, .b = a.params[0], .c = a.dx.slice(0, rows), .residual = a.dy.slice(0, rows)});
  }
  nn::LayerWork work(nn::BatchShape shape, DType compute, nn::Recompute) const override {
    const nn::Work product = nn::product_work(double(shape.rows()), kHidden, 2 * kHidden, compute);
    const nn::Work both = product + product;
    return {.forward = both, .backward = both + both};
  }

 private:
  static Tensor part(Tensor bytes, Tensor x, int index) {
    const size_t wide = size_t(x.rows * 2 * kHidden) * sizeof(float);
    return {bytes.data + size_t(index) * wide, DType::f32, x.rows, 2 * kHidden};
  }
};

nn::LayerList make_model() {
  nn::LayerList model{.hidden = kHidden, .vocab = kVocab};
  model.layers.push_back(nn::make_embedding({.vocab = kVocab, .hidden = kHidden, .init_std = 0.5f}));
  model.layers.push_back(std::make_unique<ShiftMlp>());
  model.loss = nn::make_lm_head({.hidden = kHidden, .vocab = kVocab});
  return model;
}

void run_rank(comm::World& world) {
  zero::EngineOptions options{.mesh = comm::mesh_of({world.size(), world.ranks_per_host()}),
                              .shape = {kBatch, kSeq}};
  zero::apply_stage(options.policy, 3);
  zero::Engine engine(make_model(), options, world);
  engine.load([](const nn::Parameter& param, int64_t begin, std::span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) {
      const double noise = random_normal(1, std::hash<std::string>{}(param.name), uint64_t(begin) + i);
      out[i] = param.init.kind == nn::Init::Kind::ones ? 1.0f : float(noise * double(param.init.stddev));
    }
  });
  for (int step = 0; step < 200; ++step) {
    std::vector<int32_t> tokens, targets, positions, valid;
    for (int32_t r = 0; r < kBatch * kSeq; ++r) {
      tokens.push_back(
          int32_t(random_bits(2, uint64_t(step * world.size() + world.rank()), uint64_t(r)) % kVocab));
      positions.push_back(r % kSeq);
      targets.push_back(r % kSeq >= 2 ? tokens[size_t(r) - 2] : -1);
      if (targets.back() >= 0) valid.push_back(r);
    }
    const zero::MicroBatch batch{tokens, targets, positions, {}, valid};
    const zero::StepResult result =
        engine.step({&batch, 1}, {.hyper = {.lr = 1e-2f, .step = step + 1}, .clip = 1.0});
    if (world.rank() == 0 && step % 40 == 39) std::printf("step %d  loss %.4f\n", step + 1, result.loss);
  }
}

int main() {
  comm::run_thread_ranks(2, {}, run_rank);
  return 0;
}
