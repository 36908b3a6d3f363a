// Adapter folders in PEFT's format: adapter_config.json and adapter_model.safetensors. Which tensors there
// are follows from the parameter table of a model built with LoraOptions (layers.h): everything in it that is
// trained, adapters and whole modules.
//
//   LoraOptions lora = adapter_options(folder);               // what the folder holds
//   nn::LayerList layers = build_layers(config, seq, {.lora = lora});
//   AdapterReader reader(folder, parameter_table(layers));    // its values, by range
//   AdapterWriter writer(folder, {.model = …}, table);        // and the way back
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/checkpoint/safetensors.h"
#include "zeno/checkpoint/safetensors_writer.h"
#include "zeno/model/config.h"
#include "zeno/model/lora.h"
#include "zeno/nn/layer.h"

namespace zeno::model {

// Rank, scale and targets of the adapter in a folder. Targets given as an expression become the modules that
// have tensors.
LoraOptions adapter_options(const Path& folder);

// Owns the open file. read() blocks; several threads may call it at once.
class AdapterReader {
 public:
  // Error(data) for a tensor that is missing, has another shape, is of no floating type or belongs to no
  // module of the table.
  AdapterReader(const Path& folder, const std::vector<nn::Parameter>& table);

  // Elements [begin, end) of a trained parameter, as float. A NaN or infinity is an Error(data).
  void read(const nn::Parameter& parameter, int64_t begin, int64_t end, float* out) const;

 private:
  checkpoint::SafetensorsFile file_;
};

// Values may come in any order, in ranges of any size and from several threads; the folder changes on
// commit() only, its config last.
class AdapterWriter {
 public:
  struct Options {
    ModelConfig model;
    LoraOptions lora;
    std::string base_model;  // folder or name of the model it belongs to
  };

  // `table` as parameter_table() gives it: what is trained in it is written.
  AdapterWriter(const Path& folder, const Options& options, const std::vector<nn::Parameter>& table);

  // Elements [begin, begin + values.size()) of a trained parameter; each element once.
  void write(const nn::Parameter& parameter, int64_t begin, std::span<const float> values);
  void commit();

 private:
  Path folder_;
  std::string config_text_;
  bool twice_;  // the table of embeddings goes into the file as the head as well
  checkpoint::SafetensorsWriter file_;
};

}  // namespace zeno::model
