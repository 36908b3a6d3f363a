// Headers and manifests of large models, and of files made to be expensive: time and memory grow with the
// bytes of the text, and messages stay short. The files have holes instead of data.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/sealed_manifest.h"
#include "tests/support/temp_dir.h"
#include "zeno/checkpoint/checkpoint.h"
#include "zeno/checkpoint/safetensors_folder.h"
#include "zeno/checkpoint/safetensors_writer.h"
#include "zeno/checkpoint/state_file.h"

namespace zeno::checkpoint {
namespace {

using test::expect_error;
using test::sealed_manifest;
using test::TempDir;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kFarTooLong(10);  // each takes tenths of a second

// A file with these tensors and nothing in them.
uint64_t write_hollow(const Path& path, const std::vector<TensorSpec>& specs, uint64_t& checksum) {
  const std::string header = safetensors_header(specs, {}, kDirectAlign);
  uint64_t bytes = header.size();
  for (const TensorSpec& spec : specs) bytes += spec.bytes();
  File file = File::create(path);
  file.write_at(header.data(), header.size(), 0);
  file.resize(bytes);
  checksum = checksum_of(std::as_bytes(std::span(header)));
  return bytes;
}

TEST(LargeHeaders, AHundredThousandTensors) {
  const TempDir dir;
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 100'000; ++i)
    specs.push_back({fmt::format("model.layers.{}.experts.{}.weight", i / 500, i % 500), DType::bf16, {3}});
  uint64_t checksum = 0;
  write_hollow(dir.path() / "x", specs, checksum);
  const Clock::time_point begin = Clock::now();
  const SafetensorsFile file = SafetensorsFile::open(dir.path() / "x");
  EXPECT_LT(Clock::now() - begin, kFarTooLong);
  EXPECT_EQ(file.header_checksum(), checksum);
  ASSERT_EQ(file.tensors().size(), specs.size());
  for (size_t i = 0; i < specs.size(); i += 999) {
    EXPECT_EQ(file.tensors()[i].name, specs[i].name);
    EXPECT_EQ(file.find(specs[i].name), &file.tensors()[i]);
  }
}

// Of experts in shards: the index names them all.
TEST(LargeHeaders, ShardsOfAHundredThousandTensors) {
  const TempDir dir;
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 100'000; ++i)
    specs.push_back({fmt::format("model.layers.{}.experts.{}.weight", i / 500, i % 500), DType::bf16, {0}});
  specs.push_back({"embedding", DType::u8, {8}});
  specs.push_back({"head", DType::u8, {8}});
  WeightFolderWriter writer(dir.path(), specs, 8);
  writer.write("embedding", 0, std::vector<std::byte>(8));
  writer.write("head", 0, std::vector<std::byte>(8));
  const Clock::time_point begin = Clock::now();
  writer.commit();
  EXPECT_LT(Clock::now() - begin, kFarTooLong);
  const WeightFolder folder(dir.path());
  EXPECT_EQ(folder.tensors().size(), specs.size());
  EXPECT_NE(folder.find(specs[0].name).file, folder.find("head").file);
}

TEST(LargeHeaders, AnIndexHasABoundToo) {
  const TempDir dir;
  std::string text = "{\"weight_map\":{\"0\":\"x\"";
  for (int i = 1; i <= 1 << 20; ++i) text += fmt::format(",\"{}\":\"x\"", i);
  dir.write(std::string(kIndexName), text + "}}");
  expect_error(ErrorKind::data, {"the index lists more than 1048576 tensors"},
               [&] { WeightFolder(dir.path()); });
}

// The tensors of Llama 3 8B.
std::vector<StateTensor> tensors_of_8b() {
  std::vector<StateTensor> tensors{{"embedding.weight", 128256, 4096}};
  for (int i = 0; i < 32; ++i) {
    const std::string block = fmt::format("blocks.{}.", i);
    for (const auto& [name, rows, cols] : std::vector<StateTensor>{{"attn.norm.weight", 1, 4096},
                                                                   {"attn.qkv.weight", 6144, 4096},
                                                                   {"attn.out.weight", 4096, 4096},
                                                                   {"mlp.norm.weight", 1, 4096},
                                                                   {"mlp.gate_up.weight", 28672, 4096},
                                                                   {"mlp.down.weight", 4096, 14336}})
      tensors.push_back({block + name, rows, cols});
  }
  tensors.push_back({"norm.weight", 1, 4096});
  tensors.push_back({"head.weight", 128256, 4096});
  return tensors;
}

// Its checkpoint, each rank with its share of every tensor.
Path write_8b(const Path& folder, int world) {
  Manifest manifest{.step = 5, .ranks = world, .tensors = tensors_of_8b()};
  manifest.states = {{"master"}, {"first_moment"}, {"second_moment"}};
  const Path path = folder / checkpoint_name(5);
  make_folders(path);
  for (int rank = 0; rank < world; ++rank) {
    std::vector<TensorSpec> specs;
    StateFile file{.name = state_file_name(rank, world)};
    for (int s = 0; s < 3; ++s) {
      for (int t = 0; t < int(manifest.tensors.size()); ++t) {
        const int64_t count = manifest.tensors[size_t(t)].count();
        const int64_t end = count * (rank + 1) / world;
        for (int64_t begin = count * rank / world; begin < end; begin += kExtentElements) {
          const Extent extent{s, t, begin, std::min(kExtentElements, end - begin)};
          specs.push_back({extent_name(manifest, extent), DType::f32, {extent.count}});
          file.extents.push_back(extent);
        }
      }
    }
    file.bytes = write_hollow(path / file.name, specs, file.header);
    manifest.files.push_back(std::move(file));
  }
  commit_manifest(path, manifest);
  return path;
}

TEST(LargeHeaders, ACheckpointOf8B) {
  for (int world : {1, 8}) {
    const TempDir dir;
    const Path path = write_8b(dir.path(), world);
    const Clock::time_point begin = Clock::now();
    const Checkpoint checkpoint = Checkpoint::open(path);
    EXPECT_LT(Clock::now() - begin, kFarTooLong);
    size_t extents = 0;
    for (const StateFile& file : checkpoint.manifest().files) extents += file.extents.size();
    EXPECT_GT(extents, 22'000u);
  }
}

// Opens a file of this header and expects a short line.
void refused_shortly(const std::string& header, const std::vector<std::string>& parts) {
  const TempDir dir;
  const uint64_t length = header.size();
  const Path path = dir.write("x", std::string(reinterpret_cast<const char*>(&length), 8) + header);
  const Clock::time_point begin = Clock::now();
  expect_error(ErrorKind::data, parts, [&] { SafetensorsFile::open(path); });
  EXPECT_LT(Clock::now() - begin, kFarTooLong);
  try {
    SafetensorsFile::open(path);
  } catch (const Error& error) {
    EXPECT_LT(std::string_view(error.what()).size(), 500u) << header.substr(0, 50);
  }
}

TEST(LargeHeaders, HostileHeadersEndSoonWithAShortLine) {
  const std::string long_name(1 << 20, 'n');
  refused_shortly("{\"" + long_name + "\":5}", {"nnn…", "expected an object"});
  refused_shortly("{\"" + long_name, {"not valid JSON", "the end of a string"});
  refused_shortly("{\"w\":{\"dtype\":\"" + long_name + "\"}}", {"unknown dtype"});
  refused_shortly("{\"w\":{\"shape\":[" + std::string(1 << 20, '1') + "]}}", {"\"shape\" holds 1111"});
  refused_shortly("{\"w\":{\"x\":" + std::string(1 << 20, '['), {"nested deeper than 64 levels", "byte"});
  std::string many = "{\"w\":{\"shape\":[1";
  for (int i = 0; i < 1 << 20; ++i) many += ",1";
  refused_shortly(many + "]}}", {"more than 64 dimensions"});
  std::string metadata = "{\"__metadata__\":{\"0\":\"\"";
  for (int i = 1; i < 100'000; ++i) metadata += fmt::format(",\"{}\":\"\"", i);
  refused_shortly(metadata + "}}", {"__metadata__", "more than 65536 entries"});
  std::string same = "{";
  for (int i = 0; i < 100'000; ++i) same += R"("w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)";
  refused_shortly(same + "\"v\":5}", {"v", "expected an object"});
  same.back() = '}';
  refused_shortly(same, {"w occurs twice"});
}

TEST(LargeHeaders, HostileManifestsEndSoonWithAShortLine) {
  const std::string start = R"("version":1,"step":1,"world":1,"states":[{"name":"master","dtype":"f32"}],)";
  const auto refused = [&](const std::string& members, const std::vector<std::string>& parts) {
    const std::string text = sealed_manifest(members);
    const Clock::time_point begin = Clock::now();
    expect_error(ErrorKind::data, parts, [&] { parse_manifest(text, "m"); });
    EXPECT_LT(Clock::now() - begin, kFarTooLong);
    try {
      parse_manifest(text, "m");
    } catch (const Error& error) {
      EXPECT_LT(std::string_view(error.what()).size(), 500u);
    }
  };
  const std::string name(5000, 'n');
  refused(R"("version":1)", {"has no \"step\""});
  refused(R"("step":1)", {"has no \"version\""});
  refused(R"("version":0,"step":1,"world":1,"states":[],"tensors":[],"files":[],"run":{})",
          {"version 0", "expected 1"});
  refused(R"("version":1,"world":0)", {"world is 0"});
  refused(R"("version":1,"world":99999999)", {"world is 99999999"});
  refused(start + "\"tensors\":[[\"" + name + "\",1,1]]", {"more than 4096 bytes"});
  refused(start + R"("tensors":[["w",4294967296,4294967296]])", {"w", "2^63"});
  refused(start + R"("tensors":[["w",-1,4]])", {"rows is -1"});
  refused(start + R"("tensors":[["w",1]])", {"w", "[name, rows, cols]"});
  refused(start + "\"run\":" + std::string(1 << 20, '['), {"nested deeper"});
  refused(start + "\"run\":\"" + std::string(1 << 20, 'x') + '"', {"\"run\" has 1048578 bytes"});
  const std::string tensors = R"("tensors":[["w",2,2]],)";
  const auto file = [](const std::string& file_name, const std::string& extents) {
    return fmt::format(
        R"("files":[{{"name":"{}","bytes":4,"header":"0123456789abcdef","extents":[{}]}}],"run":{{}})",
        file_name, extents);
  };
  refused(start + tensors + file("../x", ""), {"../x", "plain file name"});
  refused(start + tensors + file("x", "[0,0,0]"), {"must have 5 values"});
  refused(start + tensors + file("x", R"([0,0,0,4,"xyz"])"), {"16 hexadecimal digits"});
  refused(start + tensors + file("x", R"([0,0,9223372036854775807,4,"0123456789abcdef"])"),
          {"outside the listed states"});
  refused(start + tensors + file("x", R"([0,0,-1,4,"0123456789abcdef"])"), {"outside the listed states"});
  refused(start + tensors + file("x", R"([0,0,0,3,"0123456789abcdef"])"), {"up to 3, expected 4"});
}

}  // namespace
}  // namespace zeno::checkpoint
