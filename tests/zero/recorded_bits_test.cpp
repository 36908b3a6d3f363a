// Losses and weights of small runs, recorded at commit 70a71b8 (golden/recorded_bits.txt); refactoring must
// not change them. A line of the file is an instruction set of the CPU, a case, the hash of its losses and
// norms, and weights_hash. The bits depend on the functions of libm that the step calls (pow, sin and cos of
// rotary embeddings, log): they are those of Debian 12, where CI runs. An instruction set without lines is
// not checked; its lines are printed, ready to be added.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "tests/kernels/every_target.h"
#include "tests/support/train_run.h"
#include "zeno/base/rng.h"

namespace zeno::zero {
namespace {

using test::Family;
using test::RunResult;
using test::RunSpec;

struct Recorded {
  std::string name;
  RunSpec spec;
};

std::vector<Recorded> recorded_cases() {
  std::vector<Recorded> cases;
  const char* families[] = {"gpt2", "llama", "qwen3"};
  for (Family family : {Family::gpt2, Family::llama, Family::qwen3}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      for (int world : {1, 2, 3, 4, 8}) {
        const std::string name = std::string(families[int(family)]) + "-" + std::string(name_of(dtype)) +
                                 "-" + std::to_string(world);
        RunSpec spec;
        spec.family = family;
        spec.world = world;
        spec.policy.compute = dtype;
        apply_stage(spec.policy, (world + int(family)) % kStages);
        cases.push_back({name, spec});
        RunSpec vertical = spec;
        vertical.policy.micro_batches = 3;
        vertical.policy.order = Order::vertical;
        cases.push_back({name + "-vertical", vertical});
        RunSpec horizontal = spec;
        horizontal.policy.micro_batches = 3;
        apply_stage(horizontal.policy, 2 + world % 2);
        cases.push_back({name + "-horizontal", horizontal});
      }
      RunSpec reproducible;
      reproducible.family = family;
      reproducible.world = 2;
      reproducible.policy.compute = dtype;
      reproducible.policy.reproducible = true;
      reproducible.policy.micro_batches = 4;
      apply_stage(reproducible.policy, 3);
      cases.push_back(
          {std::string(families[int(family)]) + "-" + std::string(name_of(dtype)) + "-reproducible",
           reproducible});
    }
  }
  RunSpec wire;
  wire.world = 4;
  wire.policy.compute = wire.policy.wire = DType::bf16;
  apply_stage(wire.policy, 2);
  cases.push_back({"llama-bf16-4-bf16-on-the-wire", wire});
  RunSpec lora;
  lora.world = 2;
  lora.shape.lora = std::make_shared<const nn::LoraOptions>(
      nn::LoraOptions{.rank = 4, .adapts = [](std::string_view) { return true; }});
  apply_stage(lora.policy, 3);
  cases.push_back({"llama-f32-2-lora", lora});
  return cases;
}

uint64_t hash_of(const RunResult& run) {
  uint64_t hash = 0;
  const auto add = [&](double value) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    hash = random_bits(hash, bits, 0);
  };
  for (double loss : run.losses) add(loss);
  for (double norm : run.norms) add(norm);
  return hash;
}

// By instruction set, then by case.
std::map<std::string, std::map<std::string, std::string>> read_records() {
  std::map<std::string, std::map<std::string, std::string>> records;
  std::ifstream file(std::string(ZENO_SOURCE_DIR) + "/tests/golden/recorded_bits.txt");
  EXPECT_TRUE(file.good());
  for (std::string target, name, rest; file >> target >> name && std::getline(file, rest);)
    records[target][name] = rest;
  return records;
}

TEST(RecordedBits, AreThoseOfToday) {
  const auto records = read_records();
  std::string not_recorded;
  on_every_target([&](int64_t set) {
    const std::string target = hwy::TargetName(set);
    const auto found = records.find(target);
    if (found == records.end()) not_recorded += " " + target;
    for (const Recorded& each : recorded_cases()) {
      const RunResult run = test::run_threads(each.spec);
      std::ostringstream line;
      line << std::hex << ' ' << hash_of(run) << ' ' << run.hash;
      if (found == records.end()) {
        std::cout << target << ' ' << each.name << line.str() << '\n';
      } else {
        EXPECT_EQ(line.str(), found->second.at(each.name)) << target << ' ' << each.name;
      }
    }
  });
  if (!not_recorded.empty() && !HasFailure()) GTEST_SKIP() << "no bits are recorded for" << not_recorded;
}

}  // namespace
}  // namespace zeno::zero
