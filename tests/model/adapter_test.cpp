// Adapters of PEFT's: ten steps of training equal its own, folders are read and written in its format, merged
// weights give its logits, and what does not fit is refused by name (golden files: tools/golden_lora.py).
#include "zeno/model/adapter.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/model/golden_steps.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden.h"
#include "tests/support/kernel_stream.h"
#include "tests/support/memory.h"
#include "tests/support/temp_dir.h"
#include "zeno/comm/world.h"
#include "zeno/model/adapter_config.h"
#include "zeno/model/adapter_weights.h"
#include "zeno/model/layers.h"
#include "zeno/nn/norm.h"
#include "zeno/zero/engine.h"

namespace zeno::test {
namespace {

constexpr double kAdapterTolerance = 1e-5;

struct AdapterCase {
  std::string name, model;
};

Path golden_folder(const std::string& name) { return Path(ZENO_SOURCE_DIR) / "tests/golden" / name; }

// Our trained parameter put together from PEFT's tensors.
std::vector<float> adapter_values(const nn::Parameter& param, const Golden& golden,
                                  const std::string& prefix) {
  std::vector<float> ours;
  for (const nn::FileSlice& slice : param.files) {
    const std::vector<float> part =
        golden.floats(prefix + (param.adapter ? "" : "base_model.model.") + slice.name);
    ours.insert(ours.end(), part.begin(), part.end());
  }
  EXPECT_EQ(int64_t(ours.size()), param.count());
  return ours;
}

class Adapter : public testing::TestWithParam<AdapterCase> {
 protected:
  Path model() const { return golden_folder("model_" + GetParam().model); }
  Path folder() const { return golden_folder("lora/" + GetParam().name); }
  nn::LayerList layers() const {
    return model::build_layers(model::load_config(model()), 24, {.lora = model::adapter_options(folder())});
  }

  void train(int world_size, int stage, nn::Recompute recompute, const Path& out = {}) const;
};

void Adapter::train(int world_size, int stage, nn::Recompute recompute, const Path& out) const {
  const Golden golden("lora/" + GetParam().name + "/expected.safetensors");
  const Golden trained("lora/" + GetParam().name + "/adapter_model.safetensors");
  comm::run_thread_ranks(world_size, {}, [&](comm::World& world) {
    zero::EngineOptions options{
        .mesh = comm::Mesh::flat(world.size()), .shape = {2 / world_size, 24}, .threads = 1};
    zero::apply_stage(options.policy, stage);
    options.policy.recompute = recompute;
    nn::LayerList list = layers();
    const std::vector<nn::Parameter> table = model::parameter_table(list);
    const model::WeightReader weights(model(), table);
    zero::Engine engine(std::move(list), options, world);
    engine.load([&](const nn::Parameter& param, int64_t begin, std::span<float> out_values) {
      if (!param.trainable)
        return weights.read(param, begin, begin + int64_t(out_values.size()), out_values.data());
      const std::vector<float> start = adapter_values(param, golden, "start.");
      std::copy_n(start.begin() + begin, out_values.size(), out_values.begin());
    });
    const RankBatch batch(golden, world.rank(), world_size);
    for (int step = 0; step < 10; ++step) take_golden_step(engine, batch, golden, step, kAdapterTolerance);
    std::optional<model::AdapterWriter> writer;
    if (!out.empty() && world.rank() == 0)
      writer.emplace(out,
                     model::AdapterWriter::Options{.model = model::load_config(model()),
                                                   .lora = model::adapter_options(folder()),
                                                   .base_model = "base"},
                     table);
    for (int p = 0; p < int(table.size()); ++p) {
      const nn::Parameter& param = engine.units().params[size_t(p)];
      if (!param.trainable) continue;
      std::vector<float> ours(static_cast<size_t>(param.count()));
      engine.read(zero::State::master, p, 0, ours);
      EXPECT_LT(relative_error(ours, adapter_values(param, trained, "")), kAdapterTolerance) << param.name;
      if (writer) writer->write(param, 0, ours);
    }
    if (writer) writer->commit();
  });
}

TEST_P(Adapter, TenStepsEqualPefts) { train(1, 0, nn::Recompute::none); }
TEST_P(Adapter, TenStepsEqualPeftsOnTwoRanks) {
  for (int stage : {1, 2, 3}) train(2, stage, nn::Recompute(stage - 1));
}

// What we write reads back as what PEFT wrote, to the tolerance of training.
TEST_P(Adapter, FoldersRoundTrip) {
  const TempDir dir;
  train(1, 0, nn::Recompute::selective, dir.path());
  const model::LoraOptions theirs = model::adapter_options(folder()),
                           ours = model::adapter_options(dir.path());
  EXPECT_EQ(ours.rank, theirs.rank);
  EXPECT_EQ(ours.alpha, theirs.alpha);
  EXPECT_EQ(ours.rslora, theirs.rslora);
  const std::vector<nn::Parameter> table = model::parameter_table(layers());
  const model::AdapterReader a(folder(), table), b(dir.path(), table);
  int adapters = 0;
  for (const nn::Parameter& param : table) {
    if (!param.trainable) continue;
    ++adapters;
    std::vector<float> x(static_cast<size_t>(param.count())), y(x.size()), pieces(x.size());
    a.read(param, 0, param.count(), x.data());
    b.read(param, 0, param.count(), y.data());
    EXPECT_LT(relative_error(y, x), kAdapterTolerance);
    for (int64_t begin = 0; begin < param.count(); begin += 7)
      b.read(param, begin, std::min(begin + 7, param.count()), pieces.data() + begin);
    EXPECT_EQ(pieces, y);
  }
  EXPECT_GT(adapters, 0);
}

// Forward of the plain model over merged weights, up to the logits.
TEST_P(Adapter, MergedWeightsGivePeftsLogits) {
  const Golden golden("lora/" + GetParam().name + "/expected.safetensors");
  const model::ModelConfig config = model::load_config(model());
  const nn::LayerList list = model::build_layers(config, 24);
  const model::MergedWeights weights(model(), folder());
  KernelStream stream(1);
  std::map<std::string, Memory> values;
  for (const nn::Parameter& param : model::parameter_table(list)) {
    std::vector<float> whole(static_cast<size_t>(param.count()));
    const int64_t step = std::max<int64_t>(1, param.count() / 3 - 5);  // odd pieces
    for (int64_t begin = 0; begin < param.count(); begin += step)
      weights.read(param, begin, std::min(begin + step, param.count()), whole.data() + begin);
    from_floats(whole,
                values.emplace(param.name, Memory(DType::f32, param.rows, param.cols)).first->second.view());
  }
  std::vector<int32_t> tokens = golden.ints("tokens"), positions = golden.ints("positions");
  const nn::Batch batch{.shape = {1, 24},
                        .tokens = {tokens.data(), DType::i32, 1, 24},
                        .positions = {positions.data(), DType::i32, 1, 24}};
  Memory x(DType::f32, 24, list.hidden), y(DType::f32, 24, list.hidden);
  for (const auto& layer : list.layers) {
    std::vector<Tensor> params;
    for (const nn::Parameter& param : layer->parameters()) params.push_back(values.at(param.name).view());
    const Memory work(layer->sizes(batch.shape, DType::f32, nn::Recompute::none).workspace);
    layer->forward({.stream = stream.ref(),
                    .batch = batch,
                    .params = params,
                    .x = x.view(),
                    .y = y.view(),
                    .workspace = work.bytes()},
                   nn::Recompute::none);
    stream.sync();
    std::swap(x, y);
  }
  const std::vector<nn::Parameter> head = list.loss->parameters();
  const bool bias = head.size() == 3;
  Memory rstd(DType::f32, 24, 1), mean(DType::f32, 24, 1), logits(DType::f32, 24, list.vocab);
  nn::norm_forward(stream.ref(), bias ? nn::Norm::layer : nn::Norm::rms,
                   {.x = x.view(),
                    .weight = values.at(head[0].name).view(),
                    .bias = bias ? values.at(head[1].name).view() : Tensor{},
                    .y = y.view(),
                    .rstd = rstd.view(),
                    .mean = mean.view(),
                    .eps = float(config.norm_eps)});
  matmul(stream.ref(),
         {.a = y.view(), .b = values.at(head.back().name).view(), .c = logits.view(), .transpose_b = true});
  stream.sync();
  EXPECT_LT(relative_error(to_floats(logits.view()), golden.floats("logits")), kAdapterTolerance);
}

INSTANTIATE_TEST_SUITE_P(Peft, Adapter,
                         testing::Values(AdapterCase{"llama_qv", "llama_gqa"},
                                         AdapterCase{"llama_all", "llama_gqa"},
                                         AdapterCase{"gpt2_attn", "gpt2"}, AdapterCase{"qwen3_expr", "qwen3"},
                                         AdapterCase{"llama_rs", "llama_gqa"},
                                         AdapterCase{"llama_whole", "llama_gqa"},
                                         AdapterCase{"tied_whole", "llama_tied"}),
                         [](const auto& one) { return one.param.name; });

// A fresh adapter starts where PEFT's does: B at zero, A uniform up to 1/sqrt(in), the same for every reader.
TEST(AdapterStart, FreshValues) {
  const Path folder = golden_folder("model_llama_gqa");
  const std::vector<nn::Parameter> table = model::parameter_table(
      model::build_layers(model::load_config(folder), 8, {.lora = model::LoraOptions{.rank = 8}}));
  const model::StartingWeights weights(folder, {}, table, 5), other(folder, {}, table, 6);
  for (const nn::Parameter& param : table) {
    if (!param.trainable) continue;
    std::vector<float> a(static_cast<size_t>(param.count())), b(a.size()), c(a.size());
    weights.read(param, 0, param.count(), a.data());
    weights.read(param, 0, 5, b.data());
    weights.read(param, 5, param.count(), b.data() + 5);
    other.read(param, 0, param.count(), c.data());
    EXPECT_EQ(a, b);
    const float largest = *std::ranges::max_element(a), bound = float(1 / std::sqrt(double(param.cols)));
    const bool is_a = param.name.ends_with(".lora_a");
    EXPECT_EQ(a != c, is_a) << param.name;
    EXPECT_LE(largest, is_a ? bound : 0);
    EXPECT_GE(largest, is_a ? 0.95f * bound : 0);
  }
}

model::ModelConfig llama() { return model::load_config(golden_folder("model_llama_gqa")); }

size_t adapted(const std::vector<std::string>& targets) {
  const std::vector<std::string> modules =
      model::linear_modules(model::parameter_table(model::build_layers(llama(), 8)));
  return model::adapted_modules(targets, modules).size();
}

TEST(Targets, NamesEndsExpressionsAndAll) {
  EXPECT_EQ(adapted({}), 14u);
  EXPECT_EQ(adapted({"all-linear"}), 14u);
  EXPECT_EQ(adapted({"ALL-LINEAR"}), 14u);
  EXPECT_EQ(adapted({"q_proj"}), 2u);
  EXPECT_EQ(adapted({"q_proj", "v_proj"}), 4u);
  EXPECT_EQ(adapted({"1.mlp.up_proj"}), 1u);
  EXPECT_EQ(adapted({"model.layers.0.mlp.up_proj", "down_proj"}), 3u);
  EXPECT_EQ(adapted({R"(.*\.(q|v)_proj)"}), 4u);
  EXPECT_EQ(adapted({R"(model\.layers\.1\..*)"}), 7u);
}

TEST(Targets, WhatMatchesNothingIsRefusedWithTheNamesThereAre) {
  const std::vector<std::string> names{"q_proj", "gate_proj", "down_proj", "model.layers.0.self_attn.q_proj"};
  for (const std::string target : {"proj", "query", "lm_head", "embed_tokens", "(q|v)_proj"}) {
    std::vector<std::string> parts = names;
    parts.push_back("\"" + target + "\"");
    expect_error(ErrorKind::usage, parts, [&] { adapted({target}); });
  }
  expect_error(ErrorKind::usage, {"\"query\""}, [&] { adapted({"q_proj", "query"}); });
  expect_error(ErrorKind::usage, {"(q", "regular expression"}, [&] { adapted({"(q"}); });
  expect_error(ErrorKind::usage, {"rank is 0"},
               [&] { model::build_layers(llama(), 8, {.lora = model::LoraOptions{.rank = 0}}); });
}

TEST(Targets, ModulesToSaveAreThoseOutsideOfBlocksAndNorms) {
  const auto trained = [](const char* folder, std::vector<std::string> names) {
    size_t count = 0;
    for (const nn::Parameter& param : model::parameter_table(model::build_layers(
             model::load_config(golden_folder(folder)), 8,
             {.lora = model::LoraOptions{.targets = {"q_proj"}, .modules_to_save = names}})))
      count += param.trainable && !param.adapter;
    return count;
  };
  EXPECT_EQ(trained("model_llama_gqa", {}), 0u);
  EXPECT_EQ(trained("model_llama_gqa", {"lm_head"}), 1u);
  EXPECT_EQ(trained("model_llama_gqa", {"embed_tokens", "lm_head"}), 2u);
  EXPECT_EQ(trained("model_llama_gqa", {"norm"}), 5u);
  EXPECT_EQ(trained("model_llama_tied", {"lm_head"}), 1u);
  for (const std::string name : {"up_proj", "head_of_state", ""}) {
    expect_error(ErrorKind::usage, {"modules_to_save \"" + name + "\"", "embed_tokens, lm_head"},
                 [&] { trained("model_llama_gqa", {name}); });
  }
}

TEST(AdapterFiles, EmbeddingsTrainedApartFromATiedHeadAreRefused) {
  const TempDir dir;
  const Path golden = golden_folder("lora/tied_whole");
  dir.write("adapter_model.safetensors", read_file(golden / "adapter_model.safetensors"));
  nlohmann::json json = nlohmann::json::parse(read_file(golden / "adapter_config.json"));
  json["ensure_weight_tying"] = false;
  dir.write("adapter_config.json", json.dump());
  expect_error(ErrorKind::data, {"ensure_weight_tying"},
               [&] { model::MergedWeights(golden_folder("model_llama_tied"), dir.path()); });
}

std::string with(const std::string& key, const nlohmann::json& value) {
  nlohmann::json json = nlohmann::json::parse(read_file(golden_folder("lora/llama_qv/adapter_config.json")));
  json[key] = value;
  return json.dump();
}

TEST(AdapterConfig, WhatZenoDoesNotDoIsRefusedByName) {
  const std::pair<std::string, nlohmann::json> refused[] = {{"peft_type", "IA3"},
                                                            {"bias", "all"},
                                                            {"use_dora", true},
                                                            {"rank_pattern", {{"q_proj", 8}}},
                                                            {"alpha_pattern", {{"q_proj", 8}}},
                                                            {"modules_to_save", {3}},
                                                            {"layers_to_transform", {0}},
                                                            {"exclude_modules", "k_proj"},
                                                            {"init_lora_weights", "pissa"},
                                                            {"lora_bias", true},
                                                            {"r", 0},
                                                            {"r", "four"},
                                                            {"lora_alpha", nullptr},
                                                            {"lora_dropout", 1.5},
                                                            {"target_modules", nullptr},
                                                            {"target_modules", {1, 2}},
                                                            {"some_future_thing", 3}};
  for (const auto& [key, value] : refused)
    expect_error(ErrorKind::data, {"here", "\"" + key + "\""},
                 [&] { model::parse_adapter_config(with(key, value), "here"); });
  expect_error(ErrorKind::data, {"here", "JSON"}, [] { model::parse_adapter_config("{", "here"); });
  expect_error(ErrorKind::data, {"here", "object"}, [] { model::parse_adapter_config("[]", "here"); });
}

TEST(AdapterConfig, WritesWhatItReads) {
  const std::vector<std::string> modules =
      model::linear_modules(model::parameter_table(model::build_layers(llama(), 8)));
  const auto again = [&](const model::LoraOptions& options) {
    return model::parse_adapter_config(model::adapter_config_text(options, llama(), modules, "x"), "here");
  };
  const model::AdapterConfig list =
      again({.rank = 3, .alpha = 4.5, .dropout = 0.25, .rslora = true, .targets = {"q_proj", "v_proj"}});
  EXPECT_EQ(list.lora.rank, 3);
  EXPECT_EQ(list.lora.alpha, 4.5);
  EXPECT_EQ(list.lora.dropout, 0.25);
  EXPECT_TRUE(list.lora.rslora);
  EXPECT_FALSE(list.pattern);
  EXPECT_EQ(list.lora.targets, (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_EQ(list.base_model, "x");
  EXPECT_EQ(again({.targets = {"all-linear"}}).lora.targets.size(), 7u);
  EXPECT_TRUE(again({.targets = {".*q_proj"}}).pattern);
}

TEST(AdapterFiles, AreCheckedAgainstTheModel) {
  const Path folder = golden_folder("lora/llama_qv");
  const auto table = [](model::LoraOptions options) {
    return model::parameter_table(model::build_layers(llama(), 8, {.lora = options}));
  };
  const model::LoraOptions good = model::adapter_options(folder);
  model::LoraOptions other = good;
  other.rank = 5;
  expect_error(ErrorKind::data, {"adapter_model.safetensors", "q_proj.lora_A", "[4, 48]", "[5, 48]"},
               [&] { model::AdapterReader(folder, table(other)); });
  other = good;
  other.targets.push_back("down_proj");
  expect_error(ErrorKind::data, {"has no tensor", "layers.0.mlp.down_proj.lora_A"},
               [&] { model::AdapterReader(folder, table(other)); });
  other.targets = {"q_proj"};
  expect_error(ErrorKind::data, {"v_proj.lora_A.weight", "does not belong to an adapted layer"},
               [&] { model::AdapterReader(folder, table(other)); });
  const TempDir dir;
  dir.write("adapter_config.json", read_file(folder / "adapter_config.json"));
  expect_error(ErrorKind::data, {"adapter_model.safetensors", "not found"},
               [&] { model::AdapterReader(dir.path(), table(good)); });
  expect_error(ErrorKind::data, {"adapter_config.json"},
               [&] { model::adapter_options(dir.path() / "none"); });
}

}  // namespace
}  // namespace zeno::test
