// Our parameters in a DeepSpeed checkpoint: which of its tensors they are is decided as for a Hugging Face
// folder (weights.h), for weights and for Adam's moments alike.
#pragma once

#include <memory>
#include <string>

#include "zeno/checkpoint/deepspeed.h"
#include "zeno/model/tensor_source.h"

namespace zeno::model {

// Tensors of one state. Shared: a reader of each state looks into the same checkpoint.
class DeepSpeedSource : public TensorSource {
 public:
  DeepSpeedSource(std::shared_ptr<const checkpoint::DeepSpeedCheckpoint> checkpoint,
                  checkpoint::DeepSpeedState state)
      : checkpoint_(std::move(checkpoint)), state_(state) {}

  std::string where() const override;
  std::vector<std::string> names() const override;
  std::optional<SourceTensor> find(std::string_view name) const override;
  void read(const SourceTensor& tensor, int64_t begin, int64_t count, float* out) const override;

 private:
  std::shared_ptr<const checkpoint::DeepSpeedCheckpoint> checkpoint_;
  checkpoint::DeepSpeedState state_;
};

}  // namespace zeno::model
