// Writes a Hugging Face folder from our parameters: the inverse of weights.h. Values may come in any order
// and in ranges of any size, from several threads; weights appear in the folder on commit() only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "zeno/base/dtype.h"
#include "zeno/base/file.h"
#include "zeno/checkpoint/safetensors_writer.h"
#include "zeno/model/config.h"
#include "zeno/nn/layer.h"

namespace zeno::model {

struct ExportOptions {
  DType dtype = DType::bf16;
  uint64_t max_shard_bytes = 5'000'000'000;
};

class ModelWriter {
 public:
  ModelWriter(const Path& folder, const ModelConfig& config, std::vector<nn::Parameter> table,
              const ExportOptions& options);

  // Elements [begin, begin + values.size()) of a parameter of the table; each element once.
  void write(const nn::Parameter& parameter, int64_t begin, std::span<const float> values);
  // Makes weights and config.json durable and visible.
  void commit();

 private:
  void write_file(const std::string& tensor, int64_t offset, std::span<const float> values);

  Path folder_;
  std::string config_text_;
  DType dtype_;
  checkpoint::WeightFolderWriter weights_;
};

// Error(io): the disk of `folder`, which need not be there yet, has no room for the weights.
void require_room(const Path& folder, const std::vector<nn::Parameter>& table, DType dtype);

// Asks for every parameter in table order, in pieces: values(parameter, begin, end, out).
using ParameterValues = std::function<void(const nn::Parameter&, int64_t begin, int64_t end, float* out)>;
void export_model(const Path& folder, const ModelConfig& config, const std::vector<nn::Parameter>& table,
                  const ParameterValues& values, const ExportOptions& options);

struct FolderExport {
  Path source;      // a model folder
  Path adapter;     // of LoRA, merged into the weights; empty: none
  Path checkpoint;  // of a run, ours or DeepSpeed's: its masters instead of the source's weights; empty: none
  Path out;
  std::optional<DType> dtype;  // default: as in the source
  uint64_t max_shard_bytes = 5'000'000'000;
  bool overwrite = false;  // take away a model that is already there
};

// Writes one model folder from another, tensor by tensor, with its tokenizer and settings. Weights are
// written last, so that an incomplete folder is never taken for a model. Error(usage) when `out` holds one.
void export_folder(const FolderExport& options);

// Copies the other files of a model, besides weights and config.json (tokenizer, chat template, generation
// settings), if they exist.
void copy_companions(const Path& from, const Path& to);

}  // namespace zeno::model
