// Collects the parameters of a layer and remembers where each one stands, so that views handed in the same
// order can be found again. An absent parameter has index kAbsent and an empty view.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "zeno/nn/layer.h"

namespace zeno::nn {

inline constexpr int kAbsent = -1;

class ParameterList {
 public:
  // A matrix [rows, cols]: normal values at start, decays.
  int matrix(std::string name, int64_t rows, int64_t cols, float stddev, std::vector<FileSlice> files) {
    return add({.name = std::move(name),
                .rows = rows,
                .cols = cols,
                .init = {Init::Kind::normal, stddev},
                .files = std::move(files)});
  }
  // A vector [1, size]: constant at start (ones for norms, zeros for biases), does not decay.
  int vector(std::string name, int64_t size, Init::Kind init, std::vector<FileSlice> files) {
    return add({.name = std::move(name),
                .rows = 1,
                .cols = size,
                .decay = false,
                .init = {init, 0.0f},
                .files = std::move(files)});
  }

  int add(Parameter parameter) {
    list_.push_back(std::move(parameter));
    return int(list_.size()) - 1;
  }
  // None of those added so far is trained, except the modules that `trains` names, if it is there.
  void freeze(const std::function<bool(std::string_view module)>& trains) {
    for (Parameter& parameter : list_) {
      const std::string& tensor = parameter.files.empty() ? parameter.name : parameter.files[0].name;
      parameter.trainable = trains && trains(std::string_view(tensor).substr(0, tensor.rfind('.')));
    }
  }

  const std::vector<Parameter>& all() const { return list_; }

 private:
  std::vector<Parameter> list_;
};

// The view of one parameter (or gradient); empty when absent or frozen.
inline Tensor pick(std::span<const Tensor> views, int index) {
  return index == kAbsent ? Tensor{} : views[size_t(index)];
}

}  // namespace zeno::nn
