// Low-rank adapters beside a linear layer: y += s·drop(x)·Aᵀ·Bᵀ. Owns no memory; calls are async on the given
// stream; immutable, so any thread may use it.
//
// A weight of ours may be several modules of Hugging Face stacked (q, k, v): each that has an adapter has r
// rows of A, and its own rows of y to write. They share the matmul with A, and the dropout mask.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/kernels/noise.h"
#include "zeno/nn/layer.h"
#include "zeno/nn/layout.h"
#include "zeno/nn/parameter_list.h"

namespace zeno::nn {

struct LoraOptions {
  int64_t rank = 0;   // r
  float scale = 1;    // s
  float dropout = 0;  // of inputs, where the batch has noise
  // By the name in Hugging Face's model: "model.layers.0.self_attn.q_proj". What has no adapter is frozen,
  // except modules that are trained whole, if any.
  std::function<bool(std::string_view module)> adapts, trains;
};

// Names of an adapter's two parameters, from the name of the weight: "blocks.0.attn.qkv.weight"; and what
// PEFT calls the tensors of a module.
std::string lora_a_name(std::string_view weight);
std::string lora_b_name(std::string_view weight);
std::string lora_a_file(std::string_view module);
std::string lora_b_file(std::string_view module);
// The module that a tensor of a Hugging Face folder belongs to: without ".weight".
std::string_view module_of(std::string_view file_tensor);

class Lora {
 public:
  // n adapted modules, K inputs.
  struct Space {
    Tensor u;        // [R, n·r], s·drop(x)·Aᵀ
    Tensor du;       // [R, n·r]
    Tensor dropped;  // [R, K], with dropout
  };
  struct Call {
    StreamRef stream;
    std::span<const Tensor> params;
    NoiseSource noise;  // key and first row; empty key: no dropout
  };

  // None: every call does nothing.
  Lora() = default;
  // For the modules among `weight.files` that the options adapt. Adds A [n·r, K] and B [rows of these, r] to
  // the list, whose files are named as PEFT does.
  Lora(const LoraOptions& options, const Parameter& weight, ParameterList& list);

  explicit operator bool() const { return !slices_.empty(); }
  // What stays from forward to backward, and the rest.
  void cut_saved(Space& space, Layout& saved, int64_t rows, DType compute) const;
  void cut_rest(Space& space, Layout& work, int64_t rows, DType compute) const;
  LayerWork work(double rows, DType compute) const;

  // Adds to y; with an empty y only `u` is made, for backward.
  void forward(const Call& call, Tensor x, const Space& space, Tensor y) const;
  // Backward in three parts, the first before the others: du; gradients of A and B, from x; what comes
  // through the adapter, added to dx.
  void begin_backward(const Call& call, Tensor dy, const Space& space) const;
  void weight_gradients(const Call& call, const BackwardArgs& args, Tensor x, Tensor dy,
                        const Space& space) const;
  void add_input_gradient(const Call& call, const Space& space, Tensor dx) const;

 private:
  struct Slice {
    int64_t row = 0, rows = 0;  // of the weight, so columns of y
    int64_t b_row = 0;          // first row of B
  };
  int64_t width() const { return int64_t(slices_.size()) * rank_; }
  bool drops(const Call& call) const { return dropout_ > 0 && call.noise.key; }
  Tensor dropped(const Call& call, Tensor x, const Space& space) const;
  Tensor part_of(Tensor wide, size_t slice) const { return wide.columns(int64_t(slice) * rank_, rank_); }
  Tensor rows_of(Tensor b, const Slice& slice) const { return b.slice(slice.b_row, slice.rows); }

  int64_t rank_ = 0, in_ = 0;
  float scale_ = 1, dropout_ = 0;
  uint64_t site_ = 0;
  std::vector<Slice> slices_;
  int a_ = kAbsent, b_ = kAbsent;
};

}  // namespace zeno::nn
