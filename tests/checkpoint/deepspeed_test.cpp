// Checkpoints of real DeepSpeed (tools/golden_deepspeed.py): every layout gives the tensors that DeepSpeed
// itself had, bit for bit, and what cannot be read is named.
#include "zeno/checkpoint/deepspeed.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/support/expect_error.h"
#include "tests/support/golden.h"
#include "tests/support/temp_dir.h"
#include "zeno/checkpoint/deepspeed_folder.h"

namespace zeno::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

const Path kGolden = Path(ZENO_SOURCE_DIR) / "tests/golden/deepspeed";

const test::Golden& expected() {
  static const test::Golden golden("deepspeed/expected.safetensors");
  return golden;
}

std::vector<float> values(const DeepSpeedCheckpoint& from, const DeepSpeedTensor& tensor,
                          DeepSpeedState state) {
  std::vector<float> all(static_cast<size_t>(tensor.count()));
  from.read(tensor, state, 0, all);
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Every tensor and state that DeepSpeed named, no more and no less.
void expect_equal(const DeepSpeedCheckpoint& got, const std::string& run) {
  std::set<std::string> seen;
  for (const DeepSpeedTensor& tensor : got.tensors()) {
    for (const DeepSpeedState state : kDeepSpeedStates) {
      const std::string name = run + "/" + std::string(name_of(state)) + "/" + tensor.name;
      ASSERT_EQ(tensor.has(state), expected().has(name)) << name;
      if (!tensor.has(state)) continue;
      seen.insert(name);
      EXPECT_TRUE(same_bits(values(got, tensor, state), expected().floats(name))) << name;
    }
  }
  size_t there = 0;
  for (const std::string& name : expected().names()) there += name.starts_with(run + "/");
  EXPECT_EQ(seen.size(), there);
}

struct Case {
  const char* folder;
  const char* run;  // whose tensors it holds
  int stage;
  int64_t steps, adam_steps;
};
const Case kCases[] = {{"stage0_fp32", "stage0_fp32", 0, 3, 3},
                       {"stage0_bf16", "stage0_bf16", 0, 3, 4},  // DeepSpeed counts one before the first
                       {"stage0_weights", "stage0_weights", 0, 0, 0},
                       {"stage1_fp32", "stage1_fp32", 1, 3, 3},
                       {"stage1_bf16", "stage1_bf16", 1, 3, 3},  // gaps behind parameters
                       {"stage1_bf16_accum", "stage1_bf16_accum", 1, 3, 3},
                       {"stage2_fp32", "stage2_fp32", 2, 3, 3},
                       {"stage2_bf16", "stage2_bf16", 2, 3, 3},  // parameters in another order
                       {"stage2_tied", "stage2_tied", 2, 3, 3},
                       {"stage3_fp32", "stage3_fp32", 3, 3, 3},
                       {"stage3_bf16", "stage3_bf16", 3, 3, 3},
                       {"stage3_tied", "stage3_tied", 3, 3, 3},
                       {"universal_stage2", "stage2_fp32", 2, 3, 0},
                       {"universal_stage3", "stage3_fp32", 3, 3, 3}};

TEST(DeepSpeed, EveryLayoutGivesTheTensorsThatDeepSpeedHad) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.folder);
    const DeepSpeedCheckpoint got = DeepSpeedCheckpoint::open(kGolden / one.folder);
    expect_equal(got, one.run);
    EXPECT_EQ(got.run().stage, one.stage);
    EXPECT_EQ(got.run().steps, one.steps);
    EXPECT_EQ(got.run().samples, 4 * one.steps);
    EXPECT_EQ(got.run().adam_steps, one.adam_steps);
    EXPECT_EQ(got.run().ranks, 2);
    EXPECT_EQ(got.run().micro_batch, 2);
    EXPECT_EQ(got.run().version, "0.19.8");
    EXPECT_EQ(got.run().universal, std::string(one.folder).starts_with("universal"));
    EXPECT_NO_THROW(got.verify());
    const DeepSpeedTensor* query = got.find("model.layers.1.self_attn.q_proj.weight");
    ASSERT_NE(query, nullptr);
    EXPECT_EQ(query->shape, (std::vector<int64_t>{24, 9}));
  }
}

TEST(DeepSpeed, AnyStretchIsTheSameAsThatPartOfTheWhole) {
  for (const char* folder : {"stage0_bf16", "stage1_bf16", "stage3_fp32", "universal_stage3"}) {
    const DeepSpeedCheckpoint got = DeepSpeedCheckpoint::open(kGolden / folder);
    for (const DeepSpeedTensor& tensor : got.tensors()) {
      const std::vector<float> whole = values(got, tensor, DeepSpeedState::second_moment);
      for (int64_t begin = 0; begin < tensor.count(); begin += 1 + tensor.count() / 5) {
        std::vector<float> part(size_t(std::min<int64_t>(tensor.count() - begin, 70)));
        got.read(tensor, DeepSpeedState::second_moment, begin, part);
        EXPECT_TRUE(same_bits(part, {whole.begin() + begin, whole.begin() + begin + int64_t(part.size())}))
            << folder << " " << tensor.name << " " << begin;
      }
    }
  }
}

TEST(DeepSpeed, TiedAndFrozenParameters) {
  for (const char* folder : {"stage2_tied", "stage3_tied"}) {
    const DeepSpeedCheckpoint got = DeepSpeedCheckpoint::open(kGolden / folder);
    EXPECT_EQ(got.find("lm_head.weight"), got.find("model.embed_tokens.weight"));
    EXPECT_EQ(got.shared().at("lm_head.weight"), "model.embed_tokens.weight");
    EXPECT_FALSE(got.find("model.layers.0.mlp.up_proj.weight")->has(DeepSpeedState::first_moment));
    EXPECT_TRUE(got.find("model.layers.1.mlp.up_proj.weight")->has(DeepSpeedState::first_moment));
    expect_error(ErrorKind::data, {"no first_moment", "model.layers.0.mlp.up_proj.weight"}, [&] {
      values(got, *got.find("model.layers.0.mlp.up_proj.weight"), DeepSpeedState::first_moment);
    });
  }
}

TEST(DeepSpeed, TheFolderOfATagIsTakenToo) {
  const Path root = kGolden / "stage2_fp32";
  EXPECT_EQ(find_deepspeed(root), root / "global_step3");
  EXPECT_EQ(find_deepspeed(root / "global_step3"), root / "global_step3");
  EXPECT_EQ(find_deepspeed(kGolden / "model"), std::nullopt);
  EXPECT_EQ(DeepSpeedCheckpoint::open(root / "global_step3").run().steps, 3);
  expect_error(ErrorKind::data, {"golden/deepspeed/model", "latest"},
               [] { DeepSpeedCheckpoint::open(kGolden / "model"); });
}

class DamagedDeepSpeed : public testing::Test {
 protected:
  // A copy of a golden folder to spoil.
  Path copy(const std::string& name) {
    fs::remove_all(dir_.path() / "copy");
    fs::copy(kGolden / name, dir_.path() / "copy", fs::copy_options::recursive);
    for (const auto& entry : fs::directory_iterator(dir_.path() / "copy")) {
      if (entry.is_directory()) return entry.path();
    }
    return {};
  }
  void expect_refused(const Path& folder, const std::vector<std::string>& parts) {
    expect_error(ErrorKind::data, parts, [&] { DeepSpeedCheckpoint::open(folder); });
  }
  test::TempDir dir_;
};

TEST_F(DamagedDeepSpeed, MissingFilesAreNamed) {
  Path folder = copy("stage2_fp32");
  fs::remove(folder / "zero_pp_rank_0_mp_rank_00_optim_states.pt");
  expect_refused(folder, {"zero_pp_rank_0_mp_rank_00_optim_states.pt is missing", "ranks 1"});
  folder = copy("stage2_fp32");
  fs::remove(folder / "zero_pp_rank_1_mp_rank_00_optim_states.pt");
  expect_refused(folder, {"is one of 2 ranks", "ranks 0 to 0"});
  folder = copy("stage2_fp32");
  fs::remove(folder / "mp_rank_00_model_states.pt");
  expect_refused(folder, {"no *_model_states.pt"});
  folder = copy("stage3_tied");
  fs::remove(folder / "zero_pp_rank_1_mp_rank_00_optim_states.pt");
  expect_refused(folder, {"of 2 ranks", "of 1"});
  folder = copy("stage3_tied");
  fs::remove(folder / "zero_pp_rank_0_mp_rank_00_model_states.pt");
  expect_refused(folder, {"zero_pp_rank_0_mp_rank_00_model_states.pt is missing", "ranks 1"});
  folder = copy("universal_stage2");
  fs::remove(folder / "zero/lm_head.weight/fp32.pt");
  expect_refused(folder, {"zero/lm_head.weight/fp32.pt", "missing"});
  fs::remove_all(folder / "zero/lm_head.weight");
  expect_refused(folder, {"folder of lm_head.weight is missing"});
}

TEST_F(DamagedDeepSpeed, FilesOfAnotherRunAreNamed) {
  Path folder = copy("stage2_fp32");
  fs::copy(folder / "zero_pp_rank_1_mp_rank_00_optim_states.pt",
           folder / "zero_pp_rank_2_mp_rank_00_optim_states.pt");
  expect_refused(folder, {"is one of 2 ranks", "ranks 0 to 2"});
  folder = copy("stage2_fp32");
  fs::copy(folder / "zero_pp_rank_1_mp_rank_00_optim_states.pt",
           folder / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt");
  expect_refused(folder, {"rank 1 has two files"});
  folder = copy("stage2_fp32");  // of a model with fewer trained parameters
  fs::copy(kGolden / "stage2_tied/global_step3/mp_rank_00_model_states.pt",
           folder / "mp_rank_00_model_states.pt", fs::copy_options::overwrite_existing);
  expect_refused(folder, {"mp_rank_00_model_states.pt", "do not belong together"});
  folder = copy("stage3_tied");
  fs::copy(kGolden / "stage3_fp32/global_step3/zero_pp_rank_1_mp_rank_00_optim_states.pt",
           folder / "zero_pp_rank_1_mp_rank_00_optim_states.pt", fs::copy_options::overwrite_existing);
  expect_refused(folder, {"zero_pp_rank_1_mp_rank_00_optim_states.pt", "param_shapes describes"});
}

TEST_F(DamagedDeepSpeed, CutAndFlippedFilesAreNamed) {
  for (const char* name : {"zero_pp_rank_1_mp_rank_00_optim_states.pt", "mp_rank_00_model_states.pt"}) {
    const Path folder = copy("stage1_fp32");
    fs::resize_file(folder / name, fs::file_size(folder / name) / 2);
    expect_refused(folder, {name, "cut"});
  }
  const Path folder = copy("stage1_fp32");
  const Path path = folder / "zero_pp_rank_1_mp_rank_00_optim_states.pt";
  const DeepSpeedCheckpoint whole = DeepSpeedCheckpoint::open(folder);
  const uint64_t at = whole.tensors().back().states[1].back().extent.begin;
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(std::streamoff(at)).put('!');
  expect_error(ErrorKind::data, {path.filename().string(), "checksum"},
               [&] { DeepSpeedCheckpoint::open(folder).verify(); });
}

TEST_F(DamagedDeepSpeed, WhatIsNotSupportedIsNamed) {
  const std::pair<const char*, const char*> names[] = {
      {"mp_rank_01_model_states.pt", "model parallelism"},
      {"zero_pp_rank_0_mp_rank_01_optim_states.pt", "model parallelism"},
      {"layer_00-model_00_model_states.pt", "pipeline parallelism"},
      {"layer_0_expert_1_mp_rank_00_model_states.pt", "experts"},
      {"expp_rank_0_mp_rank_00_optim_states.pt", "experts"},
      {"other_model_states.pt", "not a file name that DeepSpeed uses"}};
  for (const auto& [name, word] : names) {
    const Path folder = copy("stage2_fp32");
    std::ofstream(folder / name) << "x";
    expect_refused(folder, {name, word});
  }
  const Path root = copy("stage2_fp32").parent_path();
  std::ofstream(root / "latest") << "../elsewhere";
  expect_refused(root, {"latest", "../elsewhere"});
  std::ofstream(root / "latest") << "global_step9\n";
  expect_refused(root, {"latest", "global_step9"});
}

}  // namespace
}  // namespace zeno::checkpoint
