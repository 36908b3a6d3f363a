#include "zeno/model/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace zeno::model {
namespace {

using Json = nlohmann::json;
using test::expect_error;
using Kind = RopeScaling::Kind;

Json llama() {
  return {{"model_type", "llama"},    {"hidden_size", 64},
          {"num_hidden_layers", 3},   {"num_attention_heads", 4},
          {"intermediate_size", 128}, {"vocab_size", 300},
          {"num_key_value_heads", 2}, {"max_position_embeddings", 64}};
}
Json gpt2() {
  return {{"model_type", "gpt2"}, {"n_embd", 64},      {"n_layer", 2},
          {"n_head", 4},          {"n_positions", 32}, {"vocab_size", 300}};
}
Json qwen2() {
  Json json = llama();
  json["model_type"] = "qwen2";
  return json;
}

Json with(Json json, const char* key, const Json& value) {
  json[key] = value;
  return json;
}
Json without(Json json, const char* key) {
  json.erase(key);
  return json;
}

ModelConfig parse(const Json& json) { return parse_config(json.dump(), "dir/config.json"); }

void refused(const Json& json, std::vector<std::string> parts) {
  parts.push_back("dir/config.json");
  expect_error(ErrorKind::data, parts, [&] { parse(json); });
}

TEST(ModelConfig, ReadsFoldersWrittenByTransformers) {
  const Path golden = Path(ZENO_SOURCE_DIR) / "tests/golden";
  const ModelConfig gpt = load_config(golden / "model_gpt2");
  EXPECT_EQ(gpt.arch, Arch::gpt2);
  EXPECT_EQ(gpt.hidden, 48);
  EXPECT_EQ(gpt.intermediate, 4 * 48);
  EXPECT_EQ(gpt.head_dim, 8);
  EXPECT_TRUE(gpt.tied && gpt.qkv_bias && gpt.out_bias && gpt.mlp_bias);
  EXPECT_EQ(gpt.activation, ModelConfig::Activation::gelu_tanh);

  const ModelConfig llama3 = load_config(golden / "model_llama_gqa");
  EXPECT_EQ(llama3.kv_heads, 2);
  EXPECT_FALSE(llama3.tied || llama3.qkv_bias || llama3.mlp_bias || llama3.qk_norm);
  EXPECT_EQ(llama3.rope_theta, 500000);
  EXPECT_EQ(llama3.rope_scaling.kind, Kind::llama3);
  EXPECT_EQ(llama3.rope_scaling.original_context, 16);
  EXPECT_EQ(llama3.norm_eps, 1e-5);
  EXPECT_TRUE(load_config(golden / "model_llama_tied").tied);

  EXPECT_EQ(load_config(golden / "model_mistral").windows, (std::vector<int64_t>{9, 9}));
  const ModelConfig qwen = load_config(golden / "model_qwen2");
  EXPECT_TRUE(qwen.qkv_bias && !qwen.out_bias);
  const ModelConfig qwen_3 = load_config(golden / "model_qwen3");
  EXPECT_TRUE(qwen_3.qk_norm);
}

TEST(ModelConfig, BothGenerationsOfRope) {
  EXPECT_EQ(parse(llama()).rope_theta, 10000);
  EXPECT_EQ(parse(with(llama(), "rope_theta", 5e5)).rope_theta, 5e5);
  EXPECT_EQ(
      parse(with(llama(), "rope_parameters", {{"rope_type", "default"}, {"rope_theta", 7e5}})).rope_theta,
      7e5);
  const Json linear = {{"type", "linear"}, {"factor", 4}};
  const ModelConfig old = parse(with(with(llama(), "rope_scaling", linear), "rope_theta", 1e6));
  EXPECT_EQ(old.rope_scaling.kind, Kind::linear);
  EXPECT_EQ(old.rope_scaling.factor, 4);
  EXPECT_EQ(old.rope_theta, 1e6);
  const Json llama3 = {{"rope_type", "llama3"}, {"rope_theta", 5e5},
                       {"factor", 8},           {"high_freq_factor", 4},
                       {"low_freq_factor", 1},  {"original_max_position_embeddings", 8192}};
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const ModelConfig config = parse(with(llama(), key, llama3));
    EXPECT_EQ(config.rope_scaling.kind, Kind::llama3);
    EXPECT_EQ(config.rope_scaling.original_context, 8192);
    EXPECT_EQ(config.rope_theta, 5e5);
  }
  for (const char* type : {"yarn", "dynamic", "longrope", "proportional"}) {
    refused(with(llama(), "rope_scaling", {{"rope_type", type}, {"factor", 2}}),
            {type, "rope_scaling", "llama3"});
  }
  refused(with(llama(), "rope_scaling", {{"rope_type", "linear"}}), {"rope_scaling", "factor"});
  refused(with(llama(), "rope_scaling", {{"rope_type", "linear"}, {"factor", "x"}}), {"factor", "number"});
  refused(with(llama(), "rope_scaling", 7), {"rope_scaling", "object"});
  refused(with(llama(), "rope_parameters", {{"full_attention", {{"rope_theta", 1}}}}), {"per layer type"});
  refused(with(llama(), "partial_rotary_factor", 0.5), {"partial_rotary_factor"});
  refused(with(llama(), "rope_theta", -1), {"rope_theta", "-1"});
}

TEST(ModelConfig, Windows) {
  using Windows = std::vector<int64_t>;
  const Json mistral = with(llama(), "model_type", "mistral");
  EXPECT_EQ(parse(with(mistral, "sliding_window", 7)).windows, (Windows{7, 7, 7}));
  EXPECT_EQ(parse(with(mistral, "sliding_window", nullptr)).windows, (Windows{0, 0, 0}));
  EXPECT_EQ(parse(mistral).windows, (Windows{4096, 4096, 4096})) << "transformers' default";
  const Json windowed = with(with(qwen2(), "sliding_window", 5), "max_window_layers", 1);
  EXPECT_EQ(parse(windowed).windows, (Windows{0, 0, 0}));
  const Json used = with(windowed, "use_sliding_window", true);
  EXPECT_EQ(parse(used).windows, (Windows{0, 5, 5}));
  EXPECT_EQ(parse(with(used, "max_window_layers", 0)).windows, (Windows{5, 5, 5}));
  const Json types = {"sliding_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(parse(with(used, "layer_types", types)).windows, (Windows{5, 0, 5}));
  refused(with(used, "layer_types", {"full_attention"}), {"layer_types", "3 entries"});
  refused(with(used, "layer_types", {"x", "x", "x"}), {"layer_types[0]"});
  refused(with(windowed, "layer_types", types), {"layer_types[0]", "sliding_window"});
  refused(with(mistral, "sliding_window", -3), {"sliding_window", "-3"});
}

TEST(ModelConfig, DefaultsPerArchitecture) {
  EXPECT_TRUE(parse(gpt2()).tied);
  EXPECT_FALSE(parse(with(gpt2(), "tie_word_embeddings", false)).tied);
  EXPECT_FALSE(parse(llama()).tied);
  EXPECT_FALSE(parse(qwen2()).tied);
  EXPECT_TRUE(parse(with(qwen2(), "tie_word_embeddings", true)).tied);
  EXPECT_EQ(parse(without(llama(), "num_key_value_heads")).kv_heads, 4);
  EXPECT_EQ(parse(with(qwen2(), "num_key_value_heads", nullptr)).kv_heads, 4);
  EXPECT_EQ(parse(llama()).head_dim, 16);
  EXPECT_EQ(parse(with(llama(), "head_dim", 32)).head_dim, 32);
  EXPECT_EQ(parse(with(llama(), "head_dim", nullptr)).head_dim, 16);
  EXPECT_EQ(parse(with(llama(), "head_dim", 100)).head_dim, 100);  // OpenLLaMA 3B
  EXPECT_EQ(parse(with(qwen2(), "model_type", "qwen3")).head_dim, 128);
  EXPECT_EQ(parse(with(gpt2(), "n_inner", 100)).intermediate, 100);
  EXPECT_EQ(parse(with(gpt2(), "activation_function", "gelu")).activation,
            ModelConfig::Activation::gelu_exact);
  const ModelConfig biased = parse(with(with(llama(), "attention_bias", true), "mlp_bias", true));
  EXPECT_TRUE(biased.qkv_bias && biased.out_bias && biased.mlp_bias);
  EXPECT_EQ(parse(with(llama(), "torch_dtype", "bfloat16")).dtype, DType::bf16);
  EXPECT_EQ(parse(with(llama(), "dtype", "float16")).dtype, DType::f16);
  Json nameless = without(llama(), "model_type");
  nameless["architectures"] = {"LlamaForCausalLM"};
  EXPECT_EQ(parse(nameless).arch, Arch::llama);
}

TEST(ModelConfig, WarnsOfDropout) {
  EXPECT_TRUE(parse(llama()).warnings.empty());
  const ModelConfig config = parse(with(gpt2(), "resid_pdrop", 0.1));
  ASSERT_EQ(config.warnings.size(), 1u);
  EXPECT_NE(config.warnings[0].find("resid_pdrop: Zeno trains without dropout"), std::string::npos);
}

TEST(ModelConfig, RefusesWhatItCannotTrain) {
  refused(with(llama(), "model_type", "mixtral"), {"\"mixtral\"", "gpt2, llama, mistral, qwen2, qwen3"});
  refused(without(llama(), "model_type"), {"model_type"});
  refused(with(without(llama(), "model_type"), "architectures", {"BertModel"}), {"BertModel"});
  refused(with(llama(), "quantization_config", Json::object()), {"quantization_config"});
  refused(with(llama(), "hidden_act", "relu"), {"hidden_act", "relu"});
  refused(with(gpt2(), "activation_function", "relu"), {"activation_function", "relu"});
  refused(with(gpt2(), "scale_attn_by_inverse_layer_idx", true), {"scale_attn_by_inverse_layer_idx"});
  refused(with(gpt2(), "scale_attn_weights", false), {"scale_attn_weights"});
  expect_error(ErrorKind::usage, {"bert", "gpt2, llama"}, [] { parse_arch("bert"); });
}

TEST(ModelConfig, RefusesOtherHeadsAndNoHead) {
  const auto of = [](const Json& json, const char* name) { return with(json, "architectures", {name}); };
  for (const char* name :
       {"LlamaForSequenceClassification", "LlamaForTokenClassification", "LlamaForRewardModel",
        "LlamaForQuestionAnswering", "LlamaForCausalLMWithValueHead"})
    refused(of(llama(), name), {name, "head", "LlamaForCausalLM"});
  refused(of(llama(), "LlamaModel"), {"\"LlamaModel\"", "without a language-model head", "LlamaForCausalLM"});
  refused(of(gpt2(), "GPT2Model"), {"\"GPT2Model\"", "GPT2LMHeadModel"});
  refused(of(gpt2(), "GPT2DoubleHeadsModel"), {"GPT2DoubleHeadsModel"});
  refused(of(llama(), "BitnetForCausalLM"), {"BitnetForCausalLM", "not supported"});  // other layers
  EXPECT_TRUE(parse(of(llama(), "LlamaForCausalLM")).warnings.empty());
  EXPECT_TRUE(parse(of(gpt2(), "GPT2LMHeadModel")).warnings.empty());
  for (const char* name : {"LLaMAForCausalLM", "LlamaCasualForLM"}) {
    const ModelConfig config = parse(of(llama(), name));
    ASSERT_EQ(config.warnings.size(), 1u);
    EXPECT_NE(config.warnings[0].find("is read as LlamaForCausalLM"), std::string::npos);
  }
  for (const Json& odd : {Json("LlamaModel"), Json::array(), Json(nullptr), Json::array({1})})
    EXPECT_EQ(parse(with(llama(), "architectures", odd)).arch, Arch::llama);
  EXPECT_EQ(parse(with(llama(), "is_causal", false)).warnings.size(), 1u);
}

TEST(ModelConfig, ReadsTheNumbersOfPython) {
  std::string text = llama().dump();
  text.insert(1, R"("scale": Infinity, "limits": [-Infinity, NaN], "note": "NaN, Infinity", )");
  const ModelConfig config = parse_config(text, "x");
  EXPECT_EQ(config.hidden, 64);
  const std::string changed = config_text(config, DType::bf16);
  EXPECT_NE(changed.find("\"scale\": Infinity"), std::string::npos) << changed;
  EXPECT_NE(changed.find("\"NaN, Infinity\""), std::string::npos) << changed;
  EXPECT_EQ(parse_config(changed, "x").dtype, DType::bf16);
  text.insert(1, R"("rope_theta": Infinity, )");
  expect_error(ErrorKind::data, {"rope_theta", "is Infinity, expected a number"},
               [&] { parse_config(text, "x"); });
}

TEST(ModelConfig, RefusesMissingIllTypedAndAbsurdValues) {
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"}) {
    refused(without(llama(), key), {"has no", key});
    for (const Json& value : {Json(-1), Json(0), Json(1ull << 32), Json(~0ull), Json(INT64_MIN), Json(3.5),
                              Json("64"), Json::array(), Json::object(), Json(true)}) {
      refused(with(llama(), key, value), {key});
    }
  }
  for (const char* key : {"n_embd", "n_layer", "n_head"}) refused(without(gpt2(), key), {"has no", key});
  refused(with(llama(), "num_attention_heads", 5), {"hidden_size 64", "num_attention_heads 5"});
  refused(with(gpt2(), "n_head", 5), {"n_embd 64", "n_head 5"});
  refused(with(llama(), "num_key_value_heads", 3), {"3 key/value heads", "4 heads"});
  refused(with(llama(), "num_key_value_heads", 8), {"key/value heads is 8"});
  refused(with(llama(), "head_dim", 15), {"head_dim is 15", "even"});
  refused(with(llama(), "rms_norm_eps", "tiny"), {"rms_norm_eps"});
  refused(with(llama(), "tie_word_embeddings", 1), {"tie_word_embeddings", "true or false"});
  refused(with(llama(), "max_position_embeddings", -5), {"max_position_embeddings"});
  refused(Json::array(), {"array", "expected an object"});
  expect_error(ErrorKind::data, {"here", "not valid JSON"}, [] { parse_config("{\"a\":", "here"); });
  expect_error(ErrorKind::data, {"here", "not valid JSON"}, [] { parse_config("\xff\xfe", "here"); });
  const std::string deep = "{\"ignored\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  expect_error(ErrorKind::data, {"here", "nested deeper"}, [&] { parse_config(deep, "here"); });
  test::TempDir empty;
  expect_error(ErrorKind::data, {"config.json", "zeno init"}, [&] { load_config(empty.path()); });
}

// Sizes that are possible one by one, of a model that nobody can plan.
TEST(ModelConfig, RefusesSizesThatTogetherAreAbsurd) {
  Json json = llama();
  json["hidden_size"] = 1 << 18;
  json["num_hidden_layers"] = 1 << 11;
  json["intermediate_size"] = 1 << 20;
  json["num_attention_heads"] = 1 << 10;
  refused(json, {"parameters", "expected at most 1e+13"});
}

TEST(ModelConfig, TextIsKeptExceptForTheDtype) {
  const std::string text =
      "{ \"vocab_size\": 300, \"zebra\": 1,\n" + with(llama(), "dtype", "bfloat16").dump().substr(1);
  const ModelConfig config = parse_config(text, "x");
  EXPECT_EQ(config_text(config, DType::bf16), text);
  const Json changed = Json::parse(config_text(config, DType::f32));
  EXPECT_EQ(changed["dtype"], "float32");
  EXPECT_EQ(changed["zebra"], 1);
}

TEST(ModelConfig, WrittenTextReadsBackTheSame) {
  const Json scaling = {{"rope_type", "llama3"},
                        {"factor", 8},
                        {"high_freq_factor", 4},
                        {"low_freq_factor", 1},
                        {"original_max_position_embeddings", 16}};
  const Json types = {"sliding_attention", "full_attention", "full_attention"};
  Json windowed = with(with(qwen2(), "use_sliding_window", true), "sliding_window", 5);
  windowed["layer_types"] = types;
  Json qwen3 = with(windowed, "model_type", "qwen3");
  for (const Json& json : {gpt2(), llama(), with(llama(), "rope_scaling", scaling), windowed, qwen3,
                           with(with(llama(), "model_type", "mistral"), "sliding_window", nullptr)}) {
    ModelConfig config = parse(json);
    config.text.clear();
    const ModelConfig again = parse_config(config_text(config, DType::f16), "again");
    EXPECT_EQ(again.arch, config.arch);
    EXPECT_EQ(again.dtype, DType::f16);
    EXPECT_EQ(again.hidden, config.hidden);
    EXPECT_EQ(again.layers, config.layers);
    EXPECT_EQ(again.heads, config.heads);
    EXPECT_EQ(again.kv_heads, config.kv_heads);
    EXPECT_EQ(again.head_dim, config.head_dim);
    EXPECT_EQ(again.intermediate, config.intermediate);
    EXPECT_EQ(again.vocab, config.vocab);
    EXPECT_EQ(again.max_positions, config.max_positions);
    EXPECT_EQ(again.windows, config.windows);
    EXPECT_EQ(again.tied, config.tied);
    EXPECT_EQ(again.norm_eps, config.norm_eps);
    EXPECT_EQ(again.rope_scaling.kind, config.rope_scaling.kind);
    EXPECT_EQ(again.rope_scaling.factor, config.rope_scaling.factor);
    EXPECT_EQ(again.rope_scaling.original_context, config.rope_scaling.original_context);
    EXPECT_EQ(again.qkv_bias, config.qkv_bias);
    EXPECT_EQ(again.qk_norm, config.qk_norm);
    EXPECT_TRUE(again.warnings.empty());
  }
}

}  // namespace
}  // namespace zeno::model
