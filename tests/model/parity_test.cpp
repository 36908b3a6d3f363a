// Parity with transformers through the whole engine: real model folders (tests/golden/model_*), loss, every
// gradient and ten AdamW steps with clipping, on one rank and under every ZeRO stage on two.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/model/golden_steps.h"
#include "tests/support/golden.h"
#include "tests/support/memory.h"
#include "zeno/comm/world.h"
#include "zeno/model/layers.h"
#include "zeno/model/weights.h"
#include "zeno/zero/engine.h"

namespace zeno::test {
namespace {

constexpr double kTolerance = 1e-5;

struct Case {
  std::string folder, expected;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* name : {"gpt2", "llama_gqa", "llama_tied", "mistral", "qwen2", "qwen3"}) {
    all.push_back({std::string("model_") + name, "expected"});
  }
  for (const char* name : {"gpt2", "llama_gqa", "qwen2", "qwen3"}) {
    all.push_back({std::string("model_") + name, "expected_packed"});
  }
  return all;
}

// Our parameter put together from the file's tensors, as the table says.
std::vector<float> assemble(const nn::Parameter& param, const Golden& golden, const std::string& prefix) {
  std::vector<float> ours(static_cast<size_t>(param.count()));
  for (const nn::FileSlice& slice : param.files) {
    const std::vector<float> file = golden.floats(prefix + slice.name);
    const int64_t cols = param.rows == 1 ? 1 : param.cols;
    const int64_t rows = int64_t(file.size()) / cols;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        ours[size_t((slice.row + r) * cols + c)] =
            file[size_t(slice.transposed ? c * rows + r : r * cols + c)];
      }
    }
  }
  return ours;
}

class Parity : public testing::TestWithParam<Case> {
 protected:
  void run(int world_size, int stage, nn::Recompute recompute) {
    const std::string folder = std::string(ZENO_SOURCE_DIR) + "/tests/golden/" + GetParam().folder;
    const Golden golden(GetParam().folder + "/" + GetParam().expected + ".safetensors");
    comm::run_thread_ranks(world_size, {}, [&](comm::World& world) {
      zero::EngineOptions options{
          .mesh = comm::Mesh::flat(world.size()), .shape = {2 / world_size, 24}, .threads = 1};
      zero::apply_stage(options.policy, stage);
      options.policy.recompute = recompute;
      nn::LayerList layers = model::build_layers(model::load_config(folder), 24);
      const model::WeightReader weights(folder, model::parameter_table(layers));
      zero::Engine engine(std::move(layers), options, world);
      engine.load([&](const nn::Parameter& param, int64_t begin, std::span<float> out) {
        weights.read(param, begin, begin + int64_t(out.size()), out.data());
      });
      const RankBatch batch(golden, world.rank(), world_size);
      for (int step = 0; step < 10; ++step) {
        take_golden_step(engine, batch, golden, step, kTolerance);
        if (step == 0) compare(engine, zero::State::grad, golden, "grad.");
      }
      if (golden.has("weight." + engine.units().params[0].files[0].name)) {
        compare(engine, zero::State::master, golden, "weight.");
      }
    });
  }

  void compare(zero::Engine& engine, zero::State state, const Golden& golden, const std::string& prefix) {
    for (int p = 0; p < int(engine.units().params.size()); ++p) {
      const nn::Parameter& param = engine.units().params[size_t(p)];
      std::vector<float> ours(static_cast<size_t>(param.count()));
      engine.read(state, p, 0, ours);
      EXPECT_LT(relative_error(ours, assemble(param, golden, prefix)), kTolerance) << prefix << param.name;
    }
  }
};

TEST_P(Parity, OneRank) { run(1, 0, nn::Recompute::none); }
TEST_P(Parity, StagesOnTwoRanks) {
  for (int stage : {0, 1, 2, 3}) run(2, stage, stage == 3 ? nn::Recompute::full : nn::Recompute::selective);
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  return info.param.folder.substr(6) + (info.param.expected == "expected" ? "" : "_packed");
}
INSTANTIATE_TEST_SUITE_P(Transformers, Parity, testing::ValuesIn(cases()), name_of_case);

}  // namespace
}  // namespace zeno::test
