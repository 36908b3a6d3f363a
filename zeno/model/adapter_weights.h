// Values of a model that has an adapter, by range, as WeightReader::read gives those of one that has none.
// Both own their open files; read() blocks, and several threads may call it at once.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/model/adapter.h"
#include "zeno/model/weights.h"
#include "zeno/nn/layer.h"

namespace zeno::model {

// What training starts from: weights of the model's folder, what an adapter's folder has or, without one,
// fresh adapters: a function of (seed, name, index), with no effect yet.
class StartingWeights {
 public:
  // `table` with or without adapters. An empty `adapter` means none.
  StartingWeights(const Path& model, const Path& adapter, const std::vector<nn::Parameter>& table,
                  uint64_t seed);
  void read(const nn::Parameter& parameter, int64_t begin, int64_t end, float* out) const;

 private:
  WeightReader weights_;
  std::optional<AdapterReader> adapter_;
  uint64_t seed_;
};

// The adapter merged into the weights: W + s·B·A, summed in fp32, and modules that it has whole. For `zeno
// export --merge` and for running the model: the table is that of the plain model, without adapters.
class MergedWeights {
 public:
  MergedWeights(const Path& model, const Path& adapter);
  void read(const nn::Parameter& parameter, int64_t begin, int64_t end, float* out) const;

 private:
  // One adapted module: rows [row, row + rows) of a weight get s · B[b_row…] · A[a_row…].
  struct Delta {
    int64_t row = 0, rows = 0, a_row = 0, b_row = 0;
  };
  struct Adapted {
    nn::Parameter a, b;
    std::vector<Delta> deltas;
  };
  MergedWeights(const Path& model, const Path& adapter, const LoraOptions& options,
                const std::vector<nn::Parameter>& table);
  void add(const Adapted& adapted, const Delta& delta, int64_t cols, int64_t begin, int64_t end,
           float* out) const;

  int64_t rank_;
  float scale_;
  WeightReader weights_;
  AdapterReader adapter_;
  std::unordered_map<std::string, Adapted> adapted_;  // by the name of the weight
  std::set<std::string> whole_;                       // parameters that the adapter has whole
};

}  // namespace zeno::model
