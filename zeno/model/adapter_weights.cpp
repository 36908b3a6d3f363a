#include "zeno/model/adapter_weights.h"

#include <algorithm>

#include "zeno/model/init.h"
#include "zeno/model/layers.h"
#include "zeno/nn/lora.h"

namespace zeno::model {
namespace {

std::vector<nn::Parameter> adapted_table(const Path& model, const LoraOptions& options) {
  return parameter_table(build_layers(load_config(model), 1, {.lora = options}));
}

}  // namespace

StartingWeights::StartingWeights(const Path& model, const Path& adapter,
                                 const std::vector<nn::Parameter>& table, uint64_t seed)
    : weights_(model, table), seed_(seed) {
  if (!adapter.empty()) adapter_.emplace(adapter, table);
}

void StartingWeights::read(const nn::Parameter& parameter, int64_t begin, int64_t end, float* out) const {
  if (adapter_ && parameter.trainable) return adapter_->read(parameter, begin, end, out);
  if (!parameter.adapter) return weights_.read(parameter, begin, end, out);
  initial_values(parameter, seed_, begin, end, out);
}

MergedWeights::MergedWeights(const Path& model, const Path& adapter)
    : MergedWeights(model, adapter, adapter_options(adapter),
                    adapted_table(model, adapter_options(adapter))) {}

MergedWeights::MergedWeights(const Path& model, const Path& adapter, const LoraOptions& options,
                             const std::vector<nn::Parameter>& table)
    : rank_(options.rank), scale_(float(options.scale())), weights_(model, table), adapter_(adapter, table) {
  std::unordered_map<std::string, const nn::Parameter*> named;
  for (const nn::Parameter& parameter : table) named[parameter.name] = &parameter;
  for (const nn::Parameter& weight : table) {
    if (!weight.adapter && weight.trainable) whole_.insert(weight.name);
    if (weight.adapter || !weight.name.ends_with(".weight")) continue;
    const auto a = named.find(nn::lora_a_name(weight.name)), b = named.find(nn::lora_b_name(weight.name));
    if (a == named.end()) continue;
    Adapted adapted{*a->second, *b->second, {}};
    for (const nn::FileSlice& file : weight.files) {
      const std::string name = nn::lora_a_file(nn::module_of(file.name));
      for (size_t i = 0; i < adapted.a.files.size(); ++i) {
        if (adapted.a.files[i].name != name) continue;
        adapted.deltas.push_back({file.row, file.rows, adapted.a.files[i].row, adapted.b.files[i].row});
      }
    }
    adapted_.emplace(weight.name, std::move(adapted));
  }
}

void MergedWeights::read(const nn::Parameter& parameter, int64_t begin, int64_t end, float* out) const {
  if (whole_.contains(parameter.name)) return adapter_.read(parameter, begin, end, out);
  weights_.read(parameter, begin, end, out);
  const auto adapted = adapted_.find(parameter.name);
  if (adapted == adapted_.end()) return;
  for (const Delta& delta : adapted->second.deltas)
    add(adapted->second, delta, parameter.cols, begin, end, out);
}

// Adds the delta's share of elements [begin, end) of a weight with `cols` columns.
void MergedWeights::add(const Adapted& adapted, const Delta& delta, int64_t cols, int64_t begin, int64_t end,
                        float* out) const {
  const int64_t from = std::max(begin, delta.row * cols), to = std::min(end, (delta.row + delta.rows) * cols);
  if (from >= to) return;
  const int64_t first = from / cols, last = (to - 1) / cols + 1;
  std::vector<float> a(size_t(rank_ * cols)), b(size_t((last - first) * rank_)),
      sum(static_cast<size_t>(cols));
  adapter_.read(adapted.a, delta.a_row * cols, (delta.a_row + rank_) * cols, a.data());
  const int64_t b_row = delta.b_row + first - delta.row;
  adapter_.read(adapted.b, b_row * rank_, (b_row + last - first) * rank_, b.data());
  for (int64_t row = first; row < last; ++row) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (int64_t k = 0; k < rank_; ++k) {
      const float factor = b[size_t((row - first) * rank_ + k)];
      const float* const a_row = a.data() + k * cols;
      for (int64_t c = 0; c < cols; ++c) sum[size_t(c)] += factor * a_row[c];
    }
    const int64_t left = std::max(from, row * cols), right = std::min(to, (row + 1) * cols);
    for (int64_t i = left; i < right; ++i) out[i - begin] += scale_ * sum[size_t(i - row * cols)];
  }
}

}  // namespace zeno::model
