// A model run layer by layer with hand-made buffers: what the engine does, without ZeRO. Buffers have exactly
// the sizes that the layers declare and are poisoned before every use. Blocking: every call waits for its
// stream.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/kernel_stream.h"
#include "tests/support/memory.h"
#include "zeno/base/rng.h"
#include "zeno/nn/layer.h"

namespace zeno::test {

struct TokenBatch {
  nn::BatchShape shape;
  std::vector<int32_t> tokens, targets, positions,
      doc_start;  // targets: -1 = ignored; doc_start may be empty
};

// Random tokens, every seventh target ignored; with `documents`, each row holds several.
inline TokenBatch random_batch(nn::BatchShape shape, int64_t vocab, uint64_t seed, bool documents = false) {
  TokenBatch b{.shape = shape, .tokens = {}, .targets = {}, .positions = {}, .doc_start = {}};
  for (int64_t i = 0; i < shape.rows(); ++i) {
    const auto index = uint64_t(i);
    const int64_t t = i % shape.seq, start = documents ? t / 5 * 5 : 0;
    b.tokens.push_back(int32_t(random_bits(seed, 0, index) % uint64_t(vocab)));
    b.targets.push_back(i % 7 == 3 ? -1 : int32_t(random_bits(seed, 1, index) % uint64_t(vocab)));
    b.positions.push_back(int32_t(t - start));
    if (documents) b.doc_start.push_back(int32_t(start));
  }
  return b;
}

class TinyModel {
 public:
  TinyModel(nn::LayerList model, TokenBatch batch, DType compute = DType::f32, DType grad = DType::f32,
            int threads = 2)
      : model_(std::move(model)),
        tokens_(std::move(batch)),
        compute_(compute),
        grad_(grad),
        stream_(threads) {
    for (const auto& layer : model_.layers) add(layer->parameters());
    add(model_.loss->parameters());
    for (int32_t i = 0; i < int32_t(rows()); ++i)
      if (tokens_.targets[size_t(i)] >= 0) valid_.push_back(i);
    for (size_t i = 0; i <= model_.layers.size(); ++i)
      activations_.emplace_back(compute_, rows(), model_.hidden);
    losses_ = Memory(DType::f32, 1, rows());
    hits_ = Memory(DType::i32, 1, rows());
  }

  int64_t rows() const { return tokens_.shape.rows(); }
  const std::map<std::string, nn::Parameter>& parameters() const { return parameters_; }
  std::vector<float>& weights(const std::string& name) { return weights_.at(name); }
  std::vector<float> gradient(const std::string& name) const { return to_floats(grads_.at(name).view()); }
  void freeze(const std::string& name) { parameters_.at(name).trainable = false; }
  // From now on batches have noise under this key.
  void draw(int64_t key) { noise_ = key; }
  int64_t hits() const {
    return std::accumulate(hits_.view().as<int32_t>(), hits_.view().as<int32_t>() + valid_.size(),
                           int64_t(0));
  }

  // Mean loss over valid rows; nothing is kept.
  double evaluate() {
    upload();
    for (size_t i = 0; i < model_.layers.size(); ++i) forward(i, Tensor{}, nn::Recompute::none);
    run_loss(false, 1);
    return mean_loss();
  }

  // Loss, and gradients of (mean loss · scale) in every trainable parameter.
  double train(nn::Recompute recompute, float scale = 1) {
    upload();
    for (auto& [name, grad] : grads_) grad.zero();
    std::vector<Memory> saved;
    const Drain drain{stream_};
    for (size_t i = 0; i < model_.layers.size(); ++i) {
      saved.emplace_back(sizes(i, recompute).saved);
      forward(i, saved.back().bytes(), recompute);
    }
    run_loss(true, scale);
    for (size_t i = model_.layers.size(); i-- > 0;) backward(i, saved[i], recompute);
    stream_.sync();
    for (const Memory& m : saved) m.check_guard();
    return mean_loss();
  }

 private:
  // Waits before buffers go away, also when a layer throws with work still queued.
  struct Drain {
    KernelStream& stream;
    ~Drain() {
      try {
        stream.sync();
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    }
  };

  void add(const std::vector<nn::Parameter>& list) {
    for (const nn::Parameter& p : list) {
      if (!parameters_.emplace(p.name, p).second) continue;
      const uint64_t stream = parameters_.size();
      std::vector<float>& w = weights_[p.name];
      for (int64_t i = 0; i < p.count(); ++i) {
        const float noise = float(random_normal(7, stream, uint64_t(i)));
        w.push_back(p.rows > 1 ? 0.3f * noise : (p.init.kind == nn::Init::Kind::ones ? 1 : 0) + 0.2f * noise);
      }
      params_.emplace(p.name, Memory(compute_, p.rows, p.cols));
      grads_.emplace(p.name, Memory(grad_, p.rows, p.cols));
      grads_.at(p.name).zero();
    }
  }

  void upload() {
    for (auto& [name, memory] : params_) from_floats(weights_.at(name), memory.view());
  }

  nn::Batch batch() const {
    const auto view = [](const std::vector<int32_t>& v) {
      return v.empty() ? Tensor{} : Tensor{const_cast<int32_t*>(v.data()), DType::i32, 1, int64_t(v.size())};
    };
    return {.shape = tokens_.shape,
            .tokens = view(tokens_.tokens),
            .targets = view(tokens_.targets),
            .positions = view(tokens_.positions),
            .doc_start = view(tokens_.doc_start),
            .valid_rows = view(valid_),
            .valid_count = int64_t(valid_.size()),
            .noise = noise_ ? Tensor{const_cast<int64_t*>(&*noise_), DType::i64, 1, 1} : Tensor{}};
  }

  std::vector<Tensor> params_of(const std::vector<nn::Parameter>& list) const {
    std::vector<Tensor> views;
    for (const nn::Parameter& p : list) views.push_back(params_.at(p.name).view());
    return views;
  }
  std::vector<Tensor> grads_of(const std::vector<nn::Parameter>& list) const {
    std::vector<Tensor> views;
    for (const nn::Parameter& p : list)
      views.push_back(parameters_.at(p.name).trainable ? grads_.at(p.name).view() : Tensor{});
    return views;
  }

  nn::LayerSizes sizes(size_t i, nn::Recompute recompute) const {
    return model_.layers[i]->sizes(tokens_.shape, compute_, recompute);
  }
  Tensor input(size_t i) const { return i == 0 ? Tensor{} : activations_[i].view(); }

  void forward(size_t i, Tensor saved, nn::Recompute recompute, bool want_output = true) {
    const nn::Layer& layer = *model_.layers[i];
    const Memory workspace(sizes(i, recompute).workspace);
    const Drain drain{stream_};
    const nn::Batch b = batch();
    const auto params = params_of(layer.parameters());
    layer.forward({.stream = stream_.ref(),
                   .batch = b,
                   .params = params,
                   .x = input(i),
                   .y = want_output ? activations_[i + 1].view() : Tensor{},
                   .saved = saved,
                   .workspace = workspace.bytes()},
                  recompute);
    stream_.sync();
    workspace.check_guard();
  }

  // With full recompute nothing was saved: forward runs again, without its output.
  void backward(size_t i, Memory& saved, nn::Recompute recompute) {
    const nn::Layer& layer = *model_.layers[i];
    if (recompute == nn::Recompute::full) {
      recompute = nn::Recompute::selective;
      saved = Memory(sizes(i, recompute).saved);
      if (saved.bytes()) forward(i, saved.bytes(), recompute, false);
    }
    const Memory workspace(sizes(i, recompute).workspace);
    const Drain drain{stream_};
    const nn::Batch b = batch();
    const auto params = layer.backward_needs_params() ? params_of(layer.parameters()) : std::vector<Tensor>{};
    const auto grads = grads_of(layer.parameters());
    // dx may be dy, or not: both happen here.
    const bool apart = i % 2 == 0;
    if (apart) other_gradient_ = Memory(compute_, rows(), model_.hidden);
    const Tensor dx = apart ? other_gradient_.view() : gradient_.view();
    layer.backward({.stream = stream_.ref(),
                    .batch = b,
                    .params = params,
                    .grads = grads,
                    .x = input(i),
                    .dy = gradient_.view(),
                    .dx = i == 0 ? Tensor{} : dx,
                    .saved = saved.bytes(),
                    .workspace = workspace.bytes()},
                   recompute);
    stream_.sync();
    workspace.check_guard();
    if (apart) std::swap(gradient_, other_gradient_);
  }

  void run_loss(bool training, float scale) {
    const nn::LossLayer& loss = *model_.loss;
    const Memory workspace(loss.workspace(tokens_.shape, compute_));
    const Drain drain{stream_};
    const nn::Batch b = batch();
    const auto params = params_of(loss.parameters()), grads = grads_of(loss.parameters());
    losses_.poison();
    gradient_ = Memory(compute_, rows(), model_.hidden);
    loss.run({.stream = stream_.ref(),
              .batch = b,
              .params = params,
              .grads = training ? std::span<const Tensor>(grads) : std::span<const Tensor>{},
              .x = activations_.back().view(),
              .dx = training ? gradient_.view() : Tensor{},
              .losses = losses_.view(),
              .hits = training ? Tensor{} : hits_.view(),
              .grad_scale = valid_.empty() ? 0 : scale / float(valid_.size()),
              .workspace = workspace.bytes()});
    stream_.sync();
    workspace.check_guard();
  }

  double mean_loss() const {
    double sum = 0;
    for (size_t i = 0; i < valid_.size(); ++i) sum += losses_.view().as<float>()[i];
    return sum / double(valid_.size());
  }

  nn::LayerList model_;
  TokenBatch tokens_;
  DType compute_, grad_;
  KernelStream stream_;
  std::vector<int32_t> valid_;
  std::optional<int64_t> noise_;
  std::map<std::string, nn::Parameter> parameters_;
  std::map<std::string, std::vector<float>> weights_;
  std::map<std::string, Memory> params_, grads_;
  std::vector<Memory> activations_;  // [i] is the input of layer i
  Memory gradient_, other_gradient_, losses_, hits_;
};

}  // namespace zeno::test
