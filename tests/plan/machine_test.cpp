#include "zeno/plan/machine/machine.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"
#include "zeno/base/error.h"
#include "zeno/plan/machine/measure.h"

namespace zeno::plan {
namespace {

TEST(Machine, AFileOfANewerZenoIsNeitherReadNorReplaced) {
  const test::TempDir folder;
  const Path file = folder.path() / "machine-cpu.json";
  save_machine(named_machine("h200-1"), file);
  std::string text = read_file(file);
  text.replace(text.find("\"version\": 2"), 12, "\"version\": 3");
  replace_file(file, text);
  const std::vector<std::string> words{"machine-cpu.json", "newer Zeno", "version 3", "up to 2"};
  test::expect_error(ErrorKind::data, words, [&] { load_machine(file); });
  test::expect_error(ErrorKind::data, words, [&] { measured_machine(folder.path(), Device::Kind::cpu); });
  test::expect_error(ErrorKind::data, words, [&] { save_machine(named_machine("h200-1"), file); });
  EXPECT_EQ(read_file(file), text);
  // Files of before had no version.
  text.replace(text.find("\"version\": 3,"), 13, "");
  replace_file(file, text);
  EXPECT_EQ(load_machine(file).name, "h200-1");
}

TEST(Machine, AFileHoldsAllOfIt) {
  const test::TempDir folder;
  for (const std::string& name : machine_names()) {
    const Machine machine = named_machine(name);
    const Path file = folder.path() / (name + ".json"), again = folder.path() / "again.json";
    save_machine(machine, file);
    save_machine(load_machine(file), again);
    EXPECT_EQ(read_file(file), read_file(again));
  }
}

TEST(Machine, NodesByName) {
  EXPECT_EQ(named_machine("h100-8x64").ranks(), 512);
  for (const char* bad : {"", "h100", "h100-8x", "h100-8x0", "h100-8x2x", "x4", "h100-8x2000000000"})
    EXPECT_THROW(named_machine(bad), Error) << bad;
}

TEST(Machine, RanksFillNodes) {
  const Machine machine = named_machine("a100-8");
  EXPECT_EQ(machine.with_ranks(4).node_ranks, 4);
  EXPECT_EQ(machine.with_ranks(4).nodes, 1);
  EXPECT_EQ(machine.with_ranks(64).nodes, 8);
  Machine cores{.name = "cores", .matmul_fp32 = 100, .packing = 8, .memory = 64};
  EXPECT_EQ(cores.with_ranks(4).matmul_fp32, 25);
  EXPECT_EQ(cores.with_ranks(4).packing, 2);
  EXPECT_EQ(cores.with_ranks(4).memory, 16);
}

// A rank's part of the rails, in GB/s, is what the machines were known for when they had no rails.
TEST(Machine, RanksShareRails) {
  const auto per_rank = [](const char* name) {
    const Machine machine = named_machine(name).with_ranks(64);
    return machine.between.rate * machine.rails / machine.node_ranks / 1e9;
  };
  EXPECT_DOUBLE_EQ(per_rank("h200-1"), 45);
  EXPECT_DOUBLE_EQ(per_rank("h100-8"), 45);
  EXPECT_DOUBLE_EQ(per_rank("a100-8"), 22);
  EXPECT_DOUBLE_EQ(per_rank("v100-16"), 5.5);
  EXPECT_EQ(describe_rails(named_machine("v100-16"), 64), "8 rails of 11.0 GB/s for the 16 ranks of a node");
  EXPECT_EQ(describe_rails(named_machine("h200-1"), 2), "1 rail of 45.0 GB/s for the 1 rank of a node");
  EXPECT_EQ(describe_rails(named_machine("h100-8"), 8), "") << "one node";
}

TEST(Machine, AFileWithoutRailsHasOneForEachDevice) {
  const test::TempDir folder;
  const Path file = folder.path() / "machine.json";
  save_machine(named_machine("v100-16"), file);
  EXPECT_EQ(load_machine(file).rails, 8);
  const std::string whole = read_file(file);
  const auto with = [&](std::string_view line) {
    std::string text = whole;
    text.replace(text.find("\"rails\": 8,"), 11, line);
    replace_file(file, text);
    return load_machine(file).rails;
  };
  EXPECT_EQ(with(""), 16);
  EXPECT_EQ(with("\"rails\": 4,"), 4);
  EXPECT_THROW(with("\"rails\": 0,"), Error);
  EXPECT_THROW(with("\"rails\": \"four\","), Error);
}

TEST(Machine, KnowsWhichLinksItLacks) {
  Machine one{.name = "one GPU", .kind = Device::Kind::cuda};
  EXPECT_TRUE(one.links(1));
  EXPECT_FALSE(one.links(2));
  EXPECT_TRUE(named_machine("h100-8").links(512));
  const Machine cores{.name = "cores", .inside = {1, 0}};
  EXPECT_TRUE(cores.links(4));
  EXPECT_EQ(cores.with_ranks(4).inside.rate, 0.25) << "they share it";
}

TEST(Machine, DamageIsNamed) {
  const test::TempDir folder;
  const Path file = folder.path() / "machine.json";
  save_machine(named_machine("h200-1"), file);
  const std::string whole = read_file(file);
  for (const auto& [from, to] : {std::pair{"\"launch_s\"", "\"lunch_s\""}, std::pair{"\"cuda\"", "\"tpu\""},
                                 std::pair{"\"nodes\": 1", "\"nodes\": 0"}, std::pair{"{", "["},
                                 std::pair{"\"nodes\": 1", "\"nodes\": 1e300"},
                                 std::pair{"\"memory_bytes\": 1", "\"memory_bytes\": 999999999991"}}) {
    std::string text = whole;
    text.replace(text.find(from), std::string_view(from).size(), to);
    replace_file(file, text);
    EXPECT_THROW(load_machine(file), Error) << to;
  }
}

TEST(Machine, AProfileFromBeforePackingIsToBeMeasuredAgain) {
  const test::TempDir folder;
  const Path file = folder.path() / "machine.json";
  save_machine(named_machine("h200-1"), file);
  std::string text = read_file(file);
  const size_t at = text.find("\"packed_elements_per_s\"");
  replace_file(file, text.erase(at, text.find('\n', at) + 1 - at));
  test::expect_error(ErrorKind::data, {"packed_elements_per_s", "zeno doctor --measure"},
                     [&] { load_machine(file); });
}

}  // namespace
}  // namespace zeno::plan
