#include "zeno/model/init.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"
#include "zeno/model/export.h"
#include "zeno/model/layers.h"
#include "zeno/model/weights.h"

namespace zeno::model {
namespace {

using test::expect_error;
using test::TempDir;

InitOptions small(Arch arch) {
  return {.arch = arch, .hidden = 32, .layers = 2, .heads = 4, .vocab = 300, .max_positions = 64, .seed = 5};
}

TEST(Init, ValuesAreAFunctionOfSeedNameAndIndex) {
  nn::Parameter parameter{
      .name = "a", .rows = 100, .cols = 100, .init = {nn::Init::Kind::normal, 0.5f}, .files = {}};
  std::vector<float> whole(10'000), part(10);
  initial_values(parameter, 1, 0, 10'000, whole.data());
  initial_values(parameter, 1, 500, 510, part.data());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 500));
  double sum = 0, squares = 0;
  for (float value : whole) {
    sum += value;
    squares += double(value) * value;
  }
  EXPECT_NEAR(sum / 1e4, 0, 0.02);
  EXPECT_NEAR(std::sqrt(squares / 1e4), 0.5, 0.02);
  initial_values(parameter, 2, 0, 10, part.data());
  EXPECT_NE(part[0], whole[0]);
  parameter.name = "b";
  initial_values(parameter, 1, 0, 10, part.data());
  EXPECT_NE(part[0], whole[0]);
  parameter.init.kind = nn::Init::Kind::ones;
  initial_values(parameter, 1, 0, 10, part.data());
  EXPECT_EQ(part[9], 1.0f);
}

TEST(Init, FolderHoldsTheTableOfEveryArchitecture) {
  for (Arch arch : {Arch::gpt2, Arch::llama, Arch::mistral, Arch::qwen2, Arch::qwen3}) {
    TempDir dir;
    init_folder(small(arch), {.tokenizer_json = "{\"tokens\":1}"}, dir.path());
    EXPECT_EQ(list_folder(dir.path()), (std::vector<std::string>{"config.json", "model.safetensors",
                                                                 "tokenizer.json", "tokenizer_config.json"}));
    EXPECT_EQ(read_file(dir.path() / "tokenizer.json"), "{\"tokens\":1}");
    const ModelConfig config = load_config(dir.path());
    EXPECT_EQ(config.arch, arch);
    EXPECT_EQ(config.tied, arch == Arch::gpt2);
    EXPECT_EQ(config.eos, 256);
    const auto table = parameter_table(build_layers(config, 64));
    const WeightReader reader(dir.path(), table);
    EXPECT_TRUE(reader.unused().empty());
    std::set<std::string> names;
    for (const nn::Parameter& parameter : table) {
      names.insert(parameter.name);
      std::vector<float> expected(size_t(parameter.count())), stored(size_t(parameter.count()));
      initial_values(parameter, 5, 0, parameter.count(), expected.data());
      reader.read(parameter, 0, parameter.count(), stored.data());
      EXPECT_EQ(stored, expected) << parameter.name;
    }
    EXPECT_EQ(names.contains("lm_head.weight"), arch != Arch::gpt2);
    EXPECT_EQ(names.contains("embed.positions"), arch == Arch::gpt2);
    EXPECT_EQ(names.contains("blocks.1.attn.q_norm.weight"), arch == Arch::qwen3);
    EXPECT_EQ(names.contains("blocks.1.attn.qkv.bias"), arch == Arch::gpt2 || arch == Arch::qwen2);
    EXPECT_EQ(names.contains("blocks.1.attn.out.bias"), arch == Arch::gpt2);
    for (const char* name : {"embed.weight", "blocks.0.attn_norm.weight", "blocks.1.mlp.up.weight",
                             "blocks.1.mlp.down.weight", "final_norm.weight"}) {
      EXPECT_TRUE(names.contains(name)) << name;
    }
  }
}

TEST(Init, SizesThatOccurOnlyInTests) {
  TempDir dir;
  const InitOptions tiny = {.arch = Arch::gpt2,
                            .hidden = 8,
                            .layers = 1,
                            .heads = 1,
                            .intermediate = 1,
                            .vocab = 1,
                            .max_positions = 1};
  init_folder(tiny, {}, dir.path());
  const auto table = parameter_table(build_layers(load_config(dir.path()), 1));
  const WeightReader reader(dir.path(), table);
  for (const nn::Parameter& parameter : table) {
    std::vector<float> values(size_t(parameter.count()));
    reader.read(parameter, 0, parameter.count(), values.data());
  }
}

TEST(Init, RefusesWhatDoesNotFit) {
  TempDir dir;
  const auto refused = [&](InitOptions options, const std::vector<std::string>& parts) {
    expect_error(ErrorKind::usage, parts,
                 [&] { init_folder(options, {.tokenizer_json = "{}"}, dir.path()); });
    EXPECT_TRUE(list_folder(dir.path()).empty());
  };
  InitOptions options = small(Arch::llama);
  options.heads = 5;
  refused(options, {"32 is not a multiple of 5 heads"});
  options = small(Arch::llama);
  options.kv_heads = 3;
  refused(options, {"3 key/value heads", "4 heads"});
  options = small(Arch::gpt2);
  options.kv_heads = 2;
  refused(options, {"GPT-2"});
  options = small(Arch::llama);
  options.vocab = 255;
  refused(options, {"vocabulary is 255", "256"});
  options.vocab = -1;
  refused(options, {"-1"});
  options = small(Arch::llama);
  options.layers = 0;
  refused(options, {"layers is 0"});
}

TEST(Init, DoesNotOverwriteAModelUnasked) {
  TempDir dir;
  InitOptions options = small(Arch::llama);
  init_folder(options, {}, dir.path());
  const std::string before = read_file(dir.path() / "model.safetensors");
  options.seed = 6;
  expect_error(ErrorKind::usage, {"already holds a model"}, [&] { init_folder(options, {}, dir.path()); });
  EXPECT_EQ(read_file(dir.path() / "model.safetensors"), before);
  options.overwrite = true;
  init_folder(options, {}, dir.path());
  EXPECT_NE(read_file(dir.path() / "model.safetensors"), before);
}

TEST(Init, SequencesLongerThanLearnedPositionsAreRefused) {
  const ModelConfig config = make_config(small(Arch::gpt2));
  expect_error(ErrorKind::usage, {"65", "64"}, [&] { build_layers(config, 65); });
  EXPECT_EQ(build_layers(make_config(small(Arch::llama)), 65).layers.size(), 3u);
}

TEST(Export, CopiesTheCompanionsOfAModel) {
  TempDir from, to;
  from.write("tokenizer.json", "t");
  from.write("generation_config.json", "g");
  from.write("optimizer.pt", "o");
  copy_companions(from.path(), to.path() / "new");
  EXPECT_EQ(list_folder(to.path() / "new"),
            (std::vector<std::string>{"generation_config.json", "tokenizer.json"}));
  copy_companions(from.path(), from.path());
  EXPECT_EQ(read_file(from.path() / "tokenizer.json"), "t");
}

}  // namespace
}  // namespace zeno::model
