#include "zeno/model/init.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/base/rng.h"
#include "zeno/checkpoint/safetensors_folder.h"
#include "zeno/model/export.h"
#include "zeno/model/family.h"
#include "zeno/model/layers.h"

namespace zeno::model {
namespace {

constexpr int64_t kByteTokens = 256;
constexpr int64_t kEndOfText = 256, kEndOfTurn = 258;

std::string tokenizer_config(const ModelConfig& config) {
  nlohmann::ordered_json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                 {"clean_up_tokenization_spaces", false},
                                 {"model_max_length", config.max_positions}};
  // Named even when there is none: some classes of transformers would add a token beyond the vocabulary.
  for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token"}) json[key] = nullptr;
  if (config.eos) json["bos_token"] = json["eos_token"] = "<|endoftext|>";
  return json.dump(2) + "\n";
}

}  // namespace

void initial_values(const nn::Parameter& parameter, uint64_t seed, int64_t begin, int64_t end, float* out) {
  switch (parameter.init.kind) {
    case nn::Init::Kind::zeros:
      std::fill_n(out, end - begin, 0.0f);
      break;
    case nn::Init::Kind::ones:
      std::fill_n(out, end - begin, 1.0f);
      break;
    case nn::Init::Kind::normal: {
      const uint64_t stream = hash_name(parameter.name);
      for (int64_t i = begin; i < end; ++i) {
        out[i - begin] = float(random_normal(seed, stream, uint64_t(i)) * double(parameter.init.stddev));
      }
      break;
    }
    case nn::Init::Kind::uniform: {
      const uint64_t stream = hash_name(parameter.name);
      for (int64_t i = begin; i < end; ++i) {
        out[i - begin] = (2 * random_uniform(seed, stream, uint64_t(i)) - 1) * parameter.init.bound;
      }
    }
  }
}

ModelConfig make_config(const InitOptions& options) {
  require(options.layers >= 1 && options.layers <= kMaxLayers, ErrorKind::usage,
          "[init] number of layers is {}, expected 1 to {}", options.layers, kMaxLayers);
  require(options.hidden >= 1 && options.hidden <= kMaxHidden && options.heads >= 1, ErrorKind::usage,
          "[init] hidden size is {} and heads are {}, expected at least 1", options.hidden, options.heads);
  require(options.head_dim > 0 || options.hidden % options.heads == 0, ErrorKind::usage,
          "[init] hidden size {} is not a multiple of {} heads", options.hidden, options.heads);
  ModelConfig config;
  config.arch = options.arch;
  family_of(options.arch).preset(config);
  config.vocab = options.vocab;
  config.hidden = options.hidden;
  config.layers = options.layers;
  config.heads = options.heads;
  config.kv_heads = options.kv_heads > 0 ? options.kv_heads : options.heads;
  config.head_dim = options.head_dim > 0 ? options.head_dim : options.hidden / options.heads;
  const int64_t usual = options.arch == Arch::gpt2
                            ? 4 * options.hidden
                            : round_up<int64_t>(div_ceil<int64_t>(8 * options.hidden, 3), 64);
  config.intermediate = options.intermediate > 0 ? options.intermediate : usual;
  config.max_positions = options.max_positions;
  config.windows.assign(size_t(config.layers), 0);
  config.tied = options.tied.value_or(config.tied);
  config.dtype = options.dtype;
  if (config.vocab > kEndOfText) config.eos = kEndOfText;
  const bool plain = config.kv_heads == config.heads && config.head_dim * config.heads == config.hidden;
  require(options.arch != Arch::gpt2 || plain, ErrorKind::usage,
          "[init] GPT-2 has as many key/value heads as heads, of hidden/heads values each; leave these "
          "options out");
  check_config(config, "init", ErrorKind::usage);
  return config;
}

void init_folder(const InitOptions& options, const InitTexts& texts, const Path& folder) {
  const ModelConfig config = make_config(options);
  require(texts.tokenizer_json.empty() || options.vocab >= kByteTokens, ErrorKind::usage,
          "[init] vocabulary is {}, expected at least {} for a byte-level tokenizer", options.vocab,
          kByteTokens);
  const bool taken =
      file_exists(folder / checkpoint::kWeightsName) || file_exists(folder / checkpoint::kIndexName);
  require(!taken || options.overwrite, ErrorKind::usage,
          "[init] {} already holds a model; choose another folder, or give --overwrite", folder.string());
  const std::vector<nn::Parameter> table = parameter_table(build_layers(config, 1));
  require_room(folder, table, options.dtype);
  make_folders(folder);
  if (!texts.tokenizer_json.empty()) {
    replace_file(folder / "tokenizer.json", texts.tokenizer_json);
    replace_file(folder / "tokenizer_config.json", tokenizer_config(config));
  }
  if (!texts.chat_template.empty() && options.vocab > kEndOfTurn) {
    replace_file(folder / "chat_template.jinja", texts.chat_template);
    const nlohmann::ordered_json json = {{"eos_token_id", {kEndOfText, kEndOfTurn}}};
    replace_file(folder / "generation_config.json", json.dump(2) + "\n");
  }
  const auto values = [&](const nn::Parameter& parameter, int64_t begin, int64_t end, float* out) {
    initial_values(parameter, options.seed, begin, end, out);
  };
  export_model(folder, config, table, values, {.dtype = options.dtype, .max_shard_bytes = 5'000'000'000});
}

}  // namespace zeno::model
