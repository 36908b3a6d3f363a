// adapter_config.json of PEFT. The file is not trusted: missing or ill-typed values are an Error(data) naming
// file and key, and unsupported features (other kinds of adapters, DoRA, ranks that differ between modules,
// …) are refused by name.
#pragma once

#include <string>
#include <string_view>

#include "zeno/base/file.h"
#include "zeno/model/config.h"
#include "zeno/model/lora.h"

namespace zeno::model {

struct AdapterConfig {
  LoraOptions lora;
  bool pattern = false;    // lora.targets is one expression of PEFT's
  std::string base_model;  // name or folder; may be empty
  bool ties = false;       // embeddings that are trained whole stay tied to the head
};

// `where` names the text in messages.
AdapterConfig parse_adapter_config(std::string_view text, std::string_view where);
AdapterConfig load_adapter_config(const Path& folder);

// `modules` are those of the model (linear_modules). Tied embeddings stay tied.
std::string adapter_config_text(const LoraOptions& options, const ModelConfig& model,
                                const std::vector<std::string>& modules, const std::string& base_model);

}  // namespace zeno::model
