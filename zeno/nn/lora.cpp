#include "zeno/nn/lora.h"

#include <cmath>
#include <utility>

#include "zeno/base/rng.h"
#include "zeno/kernels/elementwise.h"
#include "zeno/kernels/matmul.h"

namespace zeno::nn {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kPrefix = "base_model.model.";  // PEFT's, before the name of the module

}  // namespace

std::string_view module_of(std::string_view file_tensor) {
  ensure(file_tensor.ends_with(kWeight), "[lora] {}: expected the name of a weight", file_tensor);
  return file_tensor.substr(0, file_tensor.size() - kWeight.size());
}
std::string lora_a_name(std::string_view weight) { return std::string(module_of(weight)).append(".lora_a"); }
std::string lora_b_name(std::string_view weight) { return std::string(module_of(weight)).append(".lora_b"); }
std::string lora_a_file(std::string_view module) {
  return std::string(kPrefix).append(module).append(".lora_A.weight");
}
std::string lora_b_file(std::string_view module) {
  return std::string(kPrefix).append(module).append(".lora_B.weight");
}

Lora::Lora(const LoraOptions& options, const Parameter& weight, ParameterList& list)
    : rank_(options.rank),
      in_(weight.cols),
      scale_(options.scale),
      dropout_(options.dropout),
      site_(hash_name(weight.name)) {
  std::vector<FileSlice> a_files, b_files;
  int64_t b_rows = 0;
  for (const FileSlice& file : weight.files) {
    const std::string_view module = module_of(file.name);
    if (!options.adapts(module)) continue;
    a_files.push_back({lora_a_file(module), width(), rank_});
    b_files.push_back({lora_b_file(module), b_rows, file.rows});
    slices_.push_back({file.row, file.rows, b_rows});
    b_rows += file.rows;
  }
  if (slices_.empty()) return;
  // As PEFT starts: A as a linear layer of torch does, B at zero.
  a_ = list.add({.name = lora_a_name(weight.name),
                 .rows = width(),
                 .cols = in_,
                 .adapter = true,
                 .init = {.kind = Init::Kind::uniform, .bound = float(1 / std::sqrt(double(in_)))},
                 .files = std::move(a_files)});
  b_ = list.add({.name = lora_b_name(weight.name),
                 .rows = b_rows,
                 .cols = rank_,
                 .adapter = true,
                 .init = {.kind = Init::Kind::zeros},
                 .files = std::move(b_files)});
}

void Lora::cut_saved(Space& space, Layout& saved, int64_t rows, DType compute) const {
  if (*this) space.u = saved.take(compute, rows, width());
}

void Lora::cut_rest(Space& space, Layout& work, int64_t rows, DType compute) const {
  if (!*this) return;
  if (space.u.rows == 0) space.u = work.take(compute, rows, width());
  space.du = work.take(compute, rows, width());
  if (dropout_ > 0) space.dropped = work.take(compute, rows, in_);
}

// Backward multiplies twice as often, with the same matrices.
LayerWork Lora::work(double rows, DType compute) const {
  if (!*this) return {};
  Work once = product_work(rows, double(in_), double(width()), compute);
  for (const Slice& slice : slices_) once += product_work(rows, double(rank_), double(slice.rows), compute);
  return {.forward = once, .backward = once + once};
}

Tensor Lora::dropped(const Call& call, Tensor x, const Space& space) const {
  if (!drops(call)) return x;
  NoiseSource noise = call.noise;
  noise.site = site_;
  dropout(call.stream, {.x = x, .y = space.dropped, .noise = noise, .probability = dropout_});
  return space.dropped;
}

void Lora::forward(const Call& call, Tensor x, const Space& space, Tensor y) const {
  if (!*this) return;
  const Tensor b = pick(call.params, b_);
  matmul(call.stream,
         {.a = dropped(call, x, space), .b = pick(call.params, a_), .c = space.u, .transpose_b = true});
  if (scale_ != 1) scale(call.stream, space.u, scale_);
  for (size_t i = 0; i < slices_.size() && y; ++i) {
    matmul(call.stream, {.a = part_of(space.u, i),
                         .b = rows_of(b, slices_[i]),
                         .c = y.columns(slices_[i].row, slices_[i].rows),
                         .transpose_b = true,
                         .accumulate = true});
  }
}

void Lora::begin_backward(const Call& call, Tensor dy, const Space& space) const {
  if (!*this) return;
  const Tensor b = pick(call.params, b_);
  for (size_t i = 0; i < slices_.size(); ++i) {
    matmul(call.stream, {.a = dy.columns(slices_[i].row, slices_[i].rows),
                         .b = rows_of(b, slices_[i]),
                         .c = part_of(space.du, i)});
  }
  if (scale_ != 1) scale(call.stream, space.du, scale_);
}

void Lora::weight_gradients(const Call& call, const BackwardArgs& args, Tensor x, Tensor dy,
                            const Space& space) const {
  const Tensor da = pick(args.grads, a_), db = pick(args.grads, b_);
  for (size_t i = 0; i < slices_.size() && db; ++i) {
    matmul(call.stream, {.a = dy.columns(slices_[i].row, slices_[i].rows),
                         .b = part_of(space.u, i),
                         .c = rows_of(db, slices_[i]),
                         .transpose_a = true,
                         .accumulate = !args.fresh});
  }
  if (!da) return;
  matmul(
      call.stream,
      {.a = space.du, .b = dropped(call, x, space), .c = da, .transpose_a = true, .accumulate = !args.fresh});
}

void Lora::add_input_gradient(const Call& call, const Space& space, Tensor dx) const {
  if (!*this) return;
  const Tensor a = pick(call.params, a_);
  if (!drops(call)) return matmul(call.stream, {.a = space.du, .b = a, .c = dx, .accumulate = true});
  NoiseSource noise = call.noise;
  noise.site = site_;
  matmul(call.stream, {.a = space.du, .b = a, .c = space.dropped});
  dropout(call.stream,
          {.x = space.dropped, .y = dx, .noise = noise, .probability = dropout_, .accumulate = true});
}

}  // namespace zeno::nn
