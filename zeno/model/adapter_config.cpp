#include "zeno/model/adapter_config.h"

#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "zeno/base/error.h"
#include "zeno/base/json_limits.h"
#include "zeno/model/config_keys.h"

namespace zeno::model {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// Keys that are read, or that say nothing about what the adapter computes.
constexpr std::array<std::string_view, 21> kKnown{"peft_type",
                                                  "r",
                                                  "lora_alpha",
                                                  "lora_dropout",
                                                  "target_modules",
                                                  "modules_to_save",
                                                  "ensure_weight_tying",
                                                  "use_rslora",
                                                  "bias",
                                                  "fan_in_fan_out",
                                                  "init_lora_weights",
                                                  "base_model_name_or_path",
                                                  "auto_mapping",
                                                  "revision",
                                                  "inference_mode",
                                                  "task_type",
                                                  "peft_version",
                                                  "megatron_core",
                                                  "qalora_group_size",
                                                  "layers_pattern",
                                                  "loftq_config"};

bool is_off(const Json& value) {
  return value.is_null() || value == false || ((value.is_object() || value.is_array()) && value.empty());
}

// Whatever else is switched on would change the result.
void refuse_unknown(const Json& json, const std::string& where) {
  for (const auto& [key, value] : json.items()) {
    const bool known = std::find(kKnown.begin(), kKnown.end(), key) != kKnown.end();
    require(known || is_off(value), ErrorKind::data,
            "[adapter] {}: \"{}\" is not supported; expected an adapter without it", where, key);
  }
}

// Some ways to start an adapter change the weights it belongs to.
void refuse_changed_base(const ConfigKeys& keys) {
  const Json* start = keys.find({"init_lora_weights"});
  if (!start || !start->is_string()) return;
  const std::string name = start->get<std::string>();
  const bool plain = name == "gaussian" || name == "eva" || name == "orthogonal" || name == "true";
  require(plain, ErrorKind::data,
          "[adapter] {}: \"init_lora_weights\" is \"{}\", which changes the base weights; save it as a plain "
          "adapter first (PEFT: path_initial_model_for_weight_conversion)",
          keys.where(), name);
}

std::vector<std::string> read_names(const Json& list, std::string_view key, const std::string& where) {
  bool names = list.is_array() && !list.empty();
  std::vector<std::string> result;
  for (const Json& name : list) {
    names = names && name.is_string();
    if (names) result.push_back(name.get<std::string>());
  }
  require(names, ErrorKind::data, "[adapter] {}: \"{}\" is not a list of strings", where, key);
  return result;
}

void read_targets(const ConfigKeys& keys, AdapterConfig& config) {
  const Json* targets = keys.find({"target_modules"});
  require(targets != nullptr, ErrorKind::data, "[adapter] {}: has no \"target_modules\"", keys.where());
  if (targets->is_string()) {
    config.lora.targets = {targets->get<std::string>()};
    config.pattern = config.lora.targets[0] != "all-linear";
    return;
  }
  config.lora.targets = read_names(*targets, "target_modules", keys.where());
}

void read_saved(const ConfigKeys& keys, AdapterConfig& config) {
  const Json* saved = keys.find({"modules_to_save"});
  if (saved && !is_off(*saved))
    config.lora.modules_to_save = read_names(*saved, "modules_to_save", keys.where());
  config.ties = keys.boolean("ensure_weight_tying", false);
}

}  // namespace

AdapterConfig parse_adapter_config(std::string_view text, std::string_view where) {
  check_json_limits(text, fmt::format("[adapter] {}", where));
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    fail(ErrorKind::data, "[adapter] {}: not valid JSON: {}", where,
         std::string_view(error.what()).substr(0, 200));
  }
  require(json.is_object(), ErrorKind::data, "[adapter] {}: is a JSON {}, expected an object", where,
          json.type_name());
  const ConfigKeys keys(json, std::string(where));
  const std::string kind = keys.string({"peft_type"});
  require(kind == "LORA", ErrorKind::data, "[adapter] {}: \"peft_type\" is \"{}\", expected LORA", where,
          kind);
  const std::string bias = keys.string({"bias"}, "none");
  require(bias == "none", ErrorKind::data,
          "[adapter] {}: \"bias\" is \"{}\", expected none: training biases is not supported", where, bias);
  refuse_unknown(json, keys.where());
  refuse_changed_base(keys);
  AdapterConfig config;
  config.lora.rank = keys.integer({"r"}, 1 << 16);
  config.lora.alpha =
      keys.number({"lora_alpha"}, std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max());
  config.lora.dropout = keys.number({"lora_dropout"}, 0, 0.999, 0.0);
  config.lora.rslora = keys.boolean("use_rslora", false);
  config.base_model = keys.string({"base_model_name_or_path"}, "");
  read_targets(keys, config);
  read_saved(keys, config);
  return config;
}

AdapterConfig load_adapter_config(const Path& folder) {
  const Path path = folder / "adapter_config.json";
  require(
      file_exists(path), ErrorKind::data,
      "[adapter] {}: got no such file, expected the folder of an adapter in PEFT's format; check the path",
      path.string());
  return parse_adapter_config(read_file(path, 1 << 22), path.string());
}

std::string adapter_config_text(const LoraOptions& options, const ModelConfig& model,
                                const std::vector<std::string>& modules, const std::string& base_model) {
  const TargetNames targets = target_names(options.targets, modules);
  OrderedJson json;
  json["base_model_name_or_path"] = base_model;
  json["bias"] = "none";
  json["fan_in_fan_out"] = model.arch == Arch::gpt2;
  json["inference_mode"] = true;
  json["init_lora_weights"] = true;
  // PEFT writes an integer where it is one, and so do we.
  if (options.alpha == double(int64_t(options.alpha))) {
    json["lora_alpha"] = int64_t(options.alpha);
  } else {
    json["lora_alpha"] = options.alpha;
  }
  json["lora_dropout"] = options.dropout;
  json["peft_type"] = "LORA";
  json["r"] = options.rank;
  json["alpha_pattern"] = OrderedJson::object();
  json["rank_pattern"] = OrderedJson::object();
  json["modules_to_save"] = nullptr;
  if (!options.modules_to_save.empty()) json["modules_to_save"] = options.modules_to_save;
  json["ensure_weight_tying"] = model.tied && !options.modules_to_save.empty();
  if (targets.pattern) {
    json["target_modules"] = targets.names[0];
  } else {
    json["target_modules"] = targets.names;
  }
  json["task_type"] = "CAUSAL_LM";
  json["use_dora"] = false;
  json["use_rslora"] = options.rslora;
  return json.dump(2) + "\n";
}

}  // namespace zeno::model
