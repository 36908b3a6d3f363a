#include "zeno/model/deepspeed_weights.h"

#include <fmt/format.h>

#include "zeno/base/error.h"

namespace zeno::model {

std::string DeepSpeedSource::where() const {
  return fmt::format("{} ({})", checkpoint_->folder().string(), checkpoint::name_of(state_));
}

std::vector<std::string> DeepSpeedSource::names() const {
  std::vector<std::string> names;
  for (const checkpoint::DeepSpeedTensor& tensor : checkpoint_->tensors()) {
    if (tensor.has(state_)) names.push_back(tensor.name);
  }
  return names;
}

std::optional<SourceTensor> DeepSpeedSource::find(std::string_view name) const {
  const checkpoint::DeepSpeedTensor* tensor = checkpoint_->find(name);
  if (tensor == nullptr || !tensor->has(state_)) return std::nullopt;
  return SourceTensor{.name = tensor->name,
                      .shape = tensor->shape,
                      .type = std::string(zeno::name_of(tensor->states[size_t(state_)].front().extent.dtype)),
                      .floating = true,
                      .file = where()};
}

void DeepSpeedSource::read(const SourceTensor& tensor, int64_t begin, int64_t count, float* out) const {
  const checkpoint::DeepSpeedTensor* found = checkpoint_->find(tensor.name);
  ensure(found != nullptr, "[deepspeed] there is no {}", tensor.name);
  checkpoint_->read(*found, state_, begin, {out, size_t(count)});
}

}  // namespace zeno::model
