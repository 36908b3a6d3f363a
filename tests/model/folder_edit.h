// Changes the weights of a model folder in place, to see what the reader says about it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "zeno/checkpoint/safetensors_folder.h"
#include "zeno/checkpoint/safetensors_writer.h"

namespace zeno::test {

struct EditedTensor {
  checkpoint::TensorSpec spec;
  std::vector<float> values;
};
using EditedTensors = std::vector<EditedTensor>;

inline EditedTensors read_tensors(const Path& folder) {
  const checkpoint::WeightFolder weights(folder);
  EditedTensors tensors;
  for (const auto& [name, tensor] : weights.tensors()) {
    EditedTensor edited{{name, *tensor.info->dtype, tensor.info->shape}, {}};
    edited.values.resize(size_t(tensor.info->count));
    tensor.read(0, tensor.info->count, edited.values.data());
    tensors.push_back(std::move(edited));
  }
  return tensors;
}

// Tensors must be F32.
inline void edit_folder(const Path& folder, const std::function<void(EditedTensors&)>& edit) {
  EditedTensors tensors = read_tensors(folder);
  edit(tensors);
  std::vector<checkpoint::TensorSpec> specs;
  for (const EditedTensor& tensor : tensors) specs.push_back(tensor.spec);
  checkpoint::WeightFolderWriter writer(folder, specs, UINT64_MAX);
  for (const EditedTensor& tensor : tensors) {
    writer.write(tensor.spec.name, 0, std::as_bytes(std::span(tensor.values)).first(tensor.spec.bytes()));
  }
  writer.commit();
}

inline EditedTensor& tensor_named(EditedTensors& tensors, const std::string& name) {
  for (EditedTensor& tensor : tensors) {
    if (tensor.spec.name == name) return tensor;
  }
  throw std::runtime_error("no tensor " + name);
}

}  // namespace zeno::test
