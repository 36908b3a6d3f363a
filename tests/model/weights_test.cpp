#include "zeno/model/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/model/folder_edit.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"
#include "zeno/base/rng.h"
#include "zeno/model/config.h"
#include "zeno/model/export.h"
#include "zeno/model/init.h"
#include "zeno/model/layers.h"

namespace zeno::model {
namespace {

using test::EditedTensor;
using test::EditedTensors;
using test::expect_error;
using test::TempDir;
using test::tensor_named;

const char* const kGolden[] = {"model_gpt2",    "model_llama_gqa", "model_llama_tied",
                               "model_mistral", "model_qwen2",     "model_qwen3"};

Path golden(const std::string& name) { return Path(ZENO_SOURCE_DIR) / "tests/golden" / name; }

std::vector<nn::Parameter> table_of(const Path& folder) {
  return parameter_table(build_layers(load_config(folder), 8));
}
const nn::Parameter& find(const std::vector<nn::Parameter>& table, const std::string& name) {
  return *std::ranges::find(table, name, &nn::Parameter::name);
}
std::vector<float> read_whole(const WeightReader& reader, const nn::Parameter& parameter) {
  std::vector<float> values(size_t(parameter.count()));
  reader.read(parameter, 0, parameter.count(), values.data());
  return values;
}

InitOptions tiny_model(Arch arch) {
  return {.arch = arch,
          .hidden = 24,
          .layers = 2,
          .heads = 3,
          .intermediate = 40,
          .vocab = 57,
          .max_positions = 16};
}

TEST(Weights, TableCoversFoldersOfTransformersExactly) {
  for (const char* name : kGolden) {
    const auto table = table_of(golden(name));
    const WeightReader reader(golden(name), table);
    EXPECT_TRUE(reader.unused().empty()) << name << " " << reader.unused()[0];
    int64_t ours = 0, theirs = 0;
    for (const nn::Parameter& parameter : table) ours += parameter.count();
    for (const EditedTensor& tensor : test::read_tensors(golden(name))) theirs += tensor.spec.count();
    EXPECT_EQ(ours, theirs) << name;
  }
}

TEST(Weights, FusedAndTransposedTensors) {
  auto tensors = test::read_tensors(golden("model_qwen2"));
  auto table = table_of(golden("model_qwen2"));
  const WeightReader qwen(golden("model_qwen2"), table);
  for (const char* kind : {"weight", "bias"}) {
    std::vector<float> stacked;
    for (const char* part : {"q", "k", "v"}) {
      const auto& values =
          tensor_named(tensors, fmt::format("model.layers.1.self_attn.{}_proj.{}", part, kind)).values;
      stacked.insert(stacked.end(), values.begin(), values.end());
    }
    EXPECT_EQ(read_whole(qwen, find(table, fmt::format("blocks.1.attn.qkv.{}", kind))), stacked);
  }
  std::vector<float> up = tensor_named(tensors, "model.layers.0.mlp.gate_proj.weight").values;
  const auto& up_proj = tensor_named(tensors, "model.layers.0.mlp.up_proj.weight").values;
  up.insert(up.end(), up_proj.begin(), up_proj.end());
  EXPECT_EQ(read_whole(qwen, find(table, "blocks.0.mlp.up.weight")), up);

  tensors = test::read_tensors(golden("model_gpt2"));
  table = table_of(golden("model_gpt2"));
  const nn::Parameter& qkv = find(table, "blocks.1.attn.qkv.weight");
  const EditedTensor& stored = tensor_named(tensors, "transformer.h.1.attn.c_attn.weight");
  ASSERT_EQ(stored.spec.shape, (std::vector<int64_t>{qkv.cols, qkv.rows}));
  const auto values = read_whole(WeightReader(golden("model_gpt2"), table), qkv);
  for (int64_t r = 0; r < qkv.rows; ++r) {
    for (int64_t c = 0; c < qkv.cols; ++c) {
      ASSERT_EQ(values[size_t(r * qkv.cols + c)], stored.values[size_t(c * qkv.rows + r)]);
    }
  }
}

TEST(Weights, AnyRangeEqualsThatPartOfTheWhole) {
  for (const char* name : kGolden) {
    const auto table = table_of(golden(name));
    const WeightReader reader(golden(name), table);
    uint64_t draw = 0;
    for (const nn::Parameter& parameter : table) {
      const std::vector<float> whole = read_whole(reader, parameter);
      for (int i = 0; i < 8; ++i) {
        const auto begin = int64_t(random_bits(1, 2, draw++) % uint64_t(parameter.count() + 1));
        const auto size = int64_t(random_bits(1, 3, draw++) % uint64_t(parameter.count() - begin + 1));
        std::vector<float> part(size_t(size) + 1, -77.0f);
        reader.read(parameter, begin, begin + size, part.data());
        ASSERT_TRUE(std::equal(part.begin(), part.end() - 1, whole.begin() + begin)) << parameter.name;
        ASSERT_EQ(part.back(), -77.0f) << "wrote past the end";
      }
    }
  }
}

TEST(Weights, ExportGivesBackTheSameTensors) {
  for (const char* name : kGolden) {
    for (uint64_t max_shard : {uint64_t(20'000), UINT64_MAX}) {
      const ModelConfig config = load_config(golden(name));
      const auto table = table_of(golden(name));
      const WeightReader reader(golden(name), table);
      TempDir out;
      export_model(out.path(), config, table,
                   [&](const nn::Parameter& parameter, int64_t begin, int64_t end, float* values) {
                     reader.read(parameter, begin, end, values);
                   },
                   {.dtype = DType::f32, .max_shard_bytes = max_shard});
      EXPECT_EQ(read_file(out.path() / "config.json"), config.text);
      const auto before = test::read_tensors(golden(name)), after = test::read_tensors(out.path());
      ASSERT_EQ(before.size(), after.size()) << name;
      for (size_t i = 0; i < before.size(); ++i) {
        EXPECT_EQ(before[i].spec.name, after[i].spec.name);
        EXPECT_EQ(before[i].spec.shape, after[i].spec.shape);
        EXPECT_EQ(before[i].values, after[i].values) << before[i].spec.name;
      }
    }
  }
}

TEST(Weights, ExportTakesRangesInAnyOrder) {
  const ModelConfig config = load_config(golden("model_gpt2"));
  const auto table = table_of(golden("model_gpt2"));
  const WeightReader reader(golden("model_gpt2"), table);
  TempDir out;
  ModelWriter writer(out.path(), config, table, {.dtype = DType::f32});
  for (const nn::Parameter& parameter : table) {
    const auto values = read_whole(reader, parameter);
    const int64_t cut = parameter.count() / 3, cut2 = std::min(parameter.count(), cut + 5);
    const std::span all(values);
    writer.write(parameter, cut2, all.subspan(size_t(cut2)));
    writer.write(parameter, 0, all.first(size_t(cut)));
    writer.write(parameter, cut, all.subspan(size_t(cut), size_t(cut2 - cut)));
  }
  writer.commit();
  const auto before = test::read_tensors(golden("model_gpt2")), after = test::read_tensors(out.path());
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(before[i].values, after[i].values) << before[i].spec.name;
}

TEST(Weights, HalfPrecisionIsRoundedOnce) {
  for (DType dtype : {DType::bf16, DType::f16}) {
    TempDir dir;
    InitOptions options = tiny_model(Arch::gpt2);
    options.dtype = dtype;
    init_folder(options, {}, dir.path());
    const auto table = table_of(dir.path());
    const WeightReader reader(dir.path(), table);
    for (const nn::Parameter& parameter : table) {
      std::vector<float> expected(size_t(parameter.count()));
      initial_values(parameter, options.seed, 0, parameter.count(), expected.data());
      for (float& value : expected) value = dtype == DType::bf16 ? float(BF16(value)) : float(F16(value));
      EXPECT_EQ(read_whole(reader, parameter), expected) << parameter.name;
    }
  }
}

TEST(Weights, NamesWhatIsWrong) {
  const auto refused = [](const std::function<void(EditedTensors&)>& edit,
                          const std::vector<std::string>& parts) {
    TempDir dir;
    init_folder(tiny_model(Arch::llama), {}, dir.path());
    test::edit_folder(dir.path(), edit);
    const auto table = table_of(dir.path());
    expect_error(ErrorKind::data, parts, [&] {
      const WeightReader reader(dir.path(), table);
      for (const nn::Parameter& parameter : table) read_whole(reader, parameter);
    });
  };
  const std::string k = "model.layers.1.self_attn.k_proj.weight";
  refused([&](auto& all) { std::erase_if(all, [&](auto& t) { return t.spec.name == k; }); },
          {"has no tensor " + k, "blocks.1.attn.qkv.weight"});
  refused([&](auto& all) { std::erase_if(all, [&](auto& t) { return t.spec.name == "lm_head.weight"; }); },
          {"has no tensor lm_head.weight", "tie_word_embeddings"});
  refused(
      [&](auto& all) {
        tensor_named(all, k).spec.shape = {12, 48};
      },
      {k, "shape [12, 48], expected [24, 24]", "do not belong together"});
  refused([&](auto& all) { tensor_named(all, k).spec.shape = {24 * 24}; }, {k, "[576]", "[24, 24]"});
  refused([&](auto& all) { tensor_named(all, k).values[77] = NAN; }, {k, "nan", "element 77"});
  refused([&](auto& all) { tensor_named(all, "model.norm.weight").values[3] = -INFINITY; },
          {"model.norm.weight", "-inf", "element 3"});
  refused([&](auto& all) { tensor_named(all, "model.norm.weight").spec.dtype = DType::i32; },
          {"model.norm.weight", "I32", "quantised"});
}

TEST(Weights, NanInATransposedTensorIsNamedByItsPlaceInTheFile) {
  TempDir dir;
  init_folder(tiny_model(Arch::gpt2), {}, dir.path());
  const std::string name = "transformer.h.0.mlp.c_fc.weight";
  test::edit_folder(dir.path(), [&](auto& all) { tensor_named(all, name).values[91] = NAN; });
  const auto table = table_of(dir.path());
  const WeightReader reader(dir.path(), table);
  expect_error(ErrorKind::data, {name, "element 91"},
               [&] { read_whole(reader, find(table, "blocks.0.mlp.up.weight")); });
}

TEST(Weights, FilesOfTheBareModelAndOldBuffers) {
  for (Arch arch : {Arch::gpt2, Arch::llama}) {
    TempDir dir;
    InitOptions options = tiny_model(arch);
    options.tied = true;
    init_folder(options, {}, dir.path());
    const auto table = table_of(dir.path());
    const auto expected = read_whole(WeightReader(dir.path(), table), table[0]);
    test::edit_folder(dir.path(), [&](EditedTensors& all) {
      for (EditedTensor& tensor : all) tensor.spec.name.erase(0, tensor.spec.name.find('.') + 1);
      all.push_back({{"h.0.attn.bias", DType::f32, {1, 1, 4, 4}}, std::vector<float>(16)});
      all.push_back({{"h.0.attn.masked_bias", DType::f32, {}}, {0.0f}});
      all.push_back({{"layers.0.self_attn.rotary_emb.inv_freq", DType::f32, {4}}, std::vector<float>(4)});
      all.push_back({{"lm_head.weight", DType::f32, {1}}, {0.0f}});
    });
    const WeightReader reader(dir.path(), table);
    EXPECT_TRUE(reader.unused().empty());
    EXPECT_EQ(read_whole(reader, table[0]), expected);
    test::edit_folder(dir.path(), [&](EditedTensors& all) {
      all.push_back({{"value_head", DType::f32, {1}}, {0}});
    });
    EXPECT_EQ(WeightReader(dir.path(), table).unused(), std::vector<std::string>{"value_head"});
  }
}

TEST(Weights, TiedTableUnderTheNameOfTheHead) {
  TempDir dir;
  InitOptions options = tiny_model(Arch::qwen2);
  options.tied = true;
  init_folder(options, {}, dir.path());
  const auto table = table_of(dir.path());
  const auto expected = read_whole(WeightReader(dir.path(), table), table[0]);
  test::edit_folder(dir.path(), [](auto& all) {
    tensor_named(all, "model.embed_tokens.weight").spec.name = "lm_head.weight";
  });
  EXPECT_EQ(read_whole(WeightReader(dir.path(), table), table[0]), expected);
}

}  // namespace
}  // namespace zeno::model
