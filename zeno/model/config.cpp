#include "zeno/model/config.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>

#include "zeno/base/json_limits.h"
#include "zeno/base/log.h"
#include "zeno/base/python_json.h"
#include "zeno/base/utf8.h"
#include "zeno/model/config_keys.h"
#include "zeno/model/family.h"

namespace zeno::model {
namespace {

using Json = nlohmann::json;

// Room for a label of each of many thousand classes.
constexpr uint64_t kMaxConfigBytes = uint64_t(4) << 20;
constexpr JsonLimits kConfigLimits{.values = 100'000, .keys = 20'000};

std::string shown(std::string_view name) { return shortened(name, 80); }

// "LlamaForCausalLM" of "architectures"; empty in a file without it.
std::string class_of(const ConfigKeys& keys) {
  const Json* classes = keys.find({"architectures"});
  const bool listed = classes && classes->is_array() && !classes->empty() && classes->at(0).is_string();
  return listed ? classes->at(0).get<std::string>() : "";
}

const Family& family_of_class(const ConfigKeys& keys, const std::string& name) {
  require(!name.empty(), ErrorKind::data,
          "[model] {}: has neither \"model_type\" nor \"architectures\"; is it the config.json of a model?",
          keys.where());
  for (const Family& family : families()) {
    if (family.class_name == name) return family;
  }
  fail(ErrorKind::data,
       "[model] {}: architecture \"{}\" is not supported, expected a causal language model of {}",
       keys.where(), shown(name), supported_archs());
}

const Family& family_of_type(const ConfigKeys& keys) {
  const std::string type = keys.string({"model_type"});
  for (const Family& family : families()) {
    if (family.model_type == type) return family;
  }
  fail(ErrorKind::data, "[model] {}: model_type \"{}\" is not supported, expected one of {}", keys.where(),
       shown(type), supported_archs());
}

// "LlamaFor…", "LLaMAFor…"
bool begins_like_a_family(std::string name) {
  for (char& c : name) c = char(std::tolower(static_cast<unsigned char>(c)));
  return std::ranges::any_of(families(),
                             [&](const Family& family) { return name.starts_with(family.model_type); });
}

// Models of a family with another head, or with none, have the same model_type and no weights for ours.
void check_class(const ConfigKeys& keys, const Family& family, const std::string& name, ModelConfig& config) {
  if (name.empty() || name == family.class_name) return;
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  const auto refuse = [&](std::string_view why) {
    fail(ErrorKind::data,
         "[model] {}: architecture \"{}\" {}, expected {}; give the causal language model it was made from",
         keys.where(), shown(name), why, family.class_name);
  };
  if (has("Classification") || has("Reward") || has("Score") || has("ValueHead") || has("QuestionAnswering"))
    refuse("has a classification, reward or value head");
  if (name.ends_with("Model") && !has("LMHead")) refuse("is a model without a language-model head");
  if (!has("LM") || !begins_like_a_family(name)) refuse("is not supported");
  // Misspelt names and subclasses; transformers goes by model_type, too.
  config.warnings.push_back(fmt::format("architecture \"{}\" is read as {}", shown(name), family.class_name));
}

void read_dtype(const ConfigKeys& keys, ModelConfig& config) {
  const std::string name = keys.string({"dtype", "torch_dtype"}, "float32");
  const std::optional<DType> dtype = parse_dtype(name);
  if (dtype && is_float(*dtype)) {
    config.dtype = *dtype;
  } else {
    config.warnings.push_back(fmt::format("dtype \"{}\" is taken as float32", shown(name)));
  }
}

// A number or, in newer models, a list of them; anything else is no concern of training.
std::optional<int64_t> read_eos(const ConfigKeys& keys) {
  const Json* value = keys.find({"eos_token_id"});
  if (value && value->is_array() && !value->empty()) value = &value->at(0);
  if (!value || !value->is_number_unsigned() || value->get<uint64_t>() > uint64_t(kMaxVocab))
    return std::nullopt;
  return value->get<int64_t>();
}

void refuse_unsupported(const ConfigKeys& keys) {
  require(!keys.has("quantization_config"), ErrorKind::data,
          "[model] {}: has a \"quantization_config\"; training quantised weights is not supported, use the "
          "original model",
          keys.where());
}

// transformers trains it so as well, unless the folder brings code of its own.
void warn_of_bidirectional(const ConfigKeys& keys, ModelConfig& config) {
  if (!keys.boolean("is_causal", true))
    config.warnings.push_back(
        "\"is_causal\" is false, as in embedding models: Zeno trains with causal attention");
}

void warn_of_dropout(const ConfigKeys& keys, ModelConfig& config) {
  std::string names;
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout"}) {
    if (keys.number({key}, 0, 1, 0.0) > 0) names += (names.empty() ? "" : ", ") + std::string(key);
  }
  if (!names.empty()) config.warnings.push_back(names + ": Zeno trains without dropout");
}

}  // namespace

std::span<const Family> families() {
  static const Family all[] = {kGpt2, kLlama, kMistral, kQwen2, kQwen3};
  return all;
}

const Family& family_of(Arch arch) { return *std::ranges::find(families(), arch, &Family::arch); }

std::string_view name_of(Arch arch) { return family_of(arch).model_type; }

std::string supported_archs() {
  std::string names;
  for (const Family& family : families())
    names += (names.empty() ? "" : ", ") + std::string(family.model_type);
  return names;
}

Arch parse_arch(std::string_view name) {
  for (const Family& family : families()) {
    if (family.model_type == name) return family.arch;
  }
  fail(ErrorKind::usage, "[model] architecture \"{}\" is not supported, expected one of {}", shown(name),
       supported_archs());
}

ModelConfig parse_config(std::string_view text, std::string_view where) {
  check_json_limits(text, fmt::format("[model] {}", where), kConfigLimits);
  Json json;
  try {
    json = Json::parse(quote_special_numbers(std::string(text)));
  } catch (const Json::exception& error) {
    fail(ErrorKind::data, "[model] {}: not valid JSON: {}", where,
         std::string_view(error.what()).substr(0, 200));
  }
  require(json.is_object(), ErrorKind::data, "[model] {}: is a JSON {}, expected an object", where,
          json.type_name());
  const ConfigKeys keys(json, std::string(where));
  const std::string class_name = class_of(keys);
  const Family& family = keys.has("model_type") ? family_of_type(keys) : family_of_class(keys, class_name);
  ModelConfig config;
  config.arch = family.arch;
  check_class(keys, family, class_name, config);
  config.text = text;
  refuse_unsupported(keys);
  config.vocab = keys.integer({"vocab_size"}, kMaxVocab);
  config.init_std = keys.number({"initializer_range"}, 0, 1, 0.02);
  config.eos = read_eos(keys);
  read_dtype(keys, config);
  family.read(keys, config);
  warn_of_bidirectional(keys, config);
  warn_of_dropout(keys, config);
  check_config(config, where, ErrorKind::data);
  return config;
}

ModelConfig load_config(const Path& folder) {
  const Path path = folder / "config.json";
  require(file_exists(path) || !file_exists(folder / "adapter_config.json"), ErrorKind::data,
          "[model] {}: got an adapter, expected a model; give its base model as the model and this folder "
          "with --adapter, or merge both with zeno export --merge",
          folder.string());
  require(file_exists(path), ErrorKind::data,
          "[model] {}: no such file; give a Hugging Face model folder, or make one with zeno init",
          path.string());
  ModelConfig config = parse_config(read_file(path, kMaxConfigBytes), path.string());
  if (log_rank() <= 0) {
    for (const std::string& warning : config.warnings) log_warning("[model] {}: {}", path.string(), warning);
  }
  return config;
}

namespace {

// Of attention, MLP and vocabulary, roughly: sizes that are fine one by one may be absurd together.
double rough_parameters(const ModelConfig& config) {
  const double heads = double(config.heads + config.kv_heads) * double(config.head_dim);
  const double layer = 2 * heads + 3 * double(config.intermediate);
  return double(config.hidden) * (double(config.layers) * layer + double(config.vocab));
}

}  // namespace

void check_config(const ModelConfig& config, std::string_view where, ErrorKind kind) {
  const auto in_range = [&](int64_t value, int64_t max, const char* what) {
    require(value >= 1 && value <= max, kind, "[model] {}: {} is {}, expected 1 to {}", where, what, value,
            max);
  };
  in_range(config.vocab, kMaxVocab, "vocabulary");
  in_range(config.hidden, kMaxHidden, "hidden size");
  in_range(config.layers, kMaxLayers, "number of layers");
  in_range(config.intermediate, kMaxIntermediate, "intermediate size");
  in_range(config.heads, kMaxHeads, "number of heads");
  in_range(config.kv_heads, config.heads, "number of key/value heads");
  in_range(config.head_dim, kMaxHeadDim, "head size");
  in_range(config.max_positions, kMaxPositions, "number of positions");
  require(rough_parameters(config) <= kMaxParameters, kind,
          "[model] {}: these sizes give {:.2g} parameters, expected at most {:.0g}", where,
          rough_parameters(config), kMaxParameters);
  require(config.heads % config.kv_heads == 0, kind,
          "[model] {}: {} key/value heads (num_key_value_heads) do not divide {} heads", where,
          config.kv_heads, config.heads);
  require(config.arch == Arch::gpt2 || config.head_dim % 2 == 0, kind,
          "[model] {}: head_dim is {}, expected an even number, because the rotary embedding rotates pairs",
          where, config.head_dim);
  ensure(int64_t(config.windows.size()) == config.layers, "[model] {}: {} windows for {} layers", where,
         config.windows.size(), config.layers);
}

std::string config_text(const ModelConfig& config, DType dtype) {
  using OrderedJson = nlohmann::ordered_json;
  const char* name = dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
  if (!config.text.empty()) {
    OrderedJson json = OrderedJson::parse(quote_special_numbers(config.text));
    const char* key = json.contains("dtype") ? "dtype" : "torch_dtype";
    if (json.contains(key) && json[key] == name) return config.text;
    json[key] = name;
    return unquote_special_numbers(json.dump(2)) + "\n";
  }
  const Family& family = family_of(config.arch);
  OrderedJson json = {{"architectures", {std::string(family.class_name)}},
                      {"model_type", std::string(family.model_type)},
                      {"torch_dtype", name},
                      {"vocab_size", config.vocab},
                      {"initializer_range", config.init_std},
                      {"tie_word_embeddings", config.tied},
                      {"use_cache", true}};
  // Said even when there is none: transformers has defaults, beyond a small vocabulary.
  for (const char* key : {"bos_token_id", "eos_token_id"})
    json[key] = config.eos ? OrderedJson(*config.eos) : nullptr;
  family.write(config, json);
  return json.dump(2) + "\n";
}

}  // namespace zeno::model
