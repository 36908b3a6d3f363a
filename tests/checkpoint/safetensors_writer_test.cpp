#include "zeno/checkpoint/safetensors_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"
#include "zeno/checkpoint/safetensors_folder.h"

namespace zeno::checkpoint {
namespace {

using test::expect_error;
using test::TempDir;

std::vector<float> ramp(int64_t count, float start) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), start);
  return values;
}

std::vector<float> read_all(const StoredTensor& tensor) {
  std::vector<float> values(size_t(tensor.info->count));
  tensor.read(0, tensor.info->count, values.data());
  return values;
}

// Three tensors of 400, 400 and 1200 bytes with known values, each start shifted by `salt`.
std::vector<TensorSpec> three_specs() {
  return {{"a", DType::f32, {10, 10}}, {"b", DType::f32, {100}}, {"c", DType::f32, {3, 100}}};
}
void write_three(WeightFolderWriter& writer, float salt) {
  for (const TensorSpec& spec : three_specs()) {
    const std::vector<float> values = ramp(spec.count(), float(spec.name[0]) * 1000 + salt);
    const auto bytes = std::as_bytes(std::span(values));
    const size_t middle = bytes.size() / 2;
    writer.write(spec.name, middle, bytes.subspan(middle));
    writer.write(spec.name, 0, bytes.first(middle));
  }
}
void write_folder(const Path& folder, uint64_t max_shard, float salt) {
  WeightFolderWriter writer(folder, three_specs(), max_shard);
  write_three(writer, salt);
  writer.commit();
}
void expect_three(const Path& folder, float salt) {
  const WeightFolder weights(folder);
  ASSERT_EQ(weights.tensors().size(), 3u);
  for (const TensorSpec& spec : three_specs()) {
    const StoredTensor tensor = weights.find(spec.name);
    ASSERT_TRUE(bool(tensor)) << spec.name;
    EXPECT_EQ(tensor.info->shape, spec.shape);
    EXPECT_EQ(read_all(tensor), ramp(spec.count(), float(spec.name[0]) * 1000 + salt));
  }
}

class FullDisk : public FileSystem {
 public:
  explicit FullDisk(int64_t left) : left_(left) {}
  ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) override {
    if (int64_t(bytes) > left_) {
      errno = ENOSPC;
      return -1;
    }
    left_ -= int64_t(bytes);
    return FileSystem::pwrite(fd, data, bytes, offset);
  }

 private:
  int64_t left_;
};

TEST(SafetensorsWriter, WhatIsWrittenIsRead) {
  TempDir dir;
  const Path path = dir.path() / "x.safetensors";
  std::vector<BF16> half(7);
  for (size_t i = 0; i < half.size(); ++i) half[i] = BF16(float(i));
  const std::vector<float> full = ramp(600'000, 1);
  const auto from = [](auto& values) {
    return [&](uint64_t offset, std::span<std::byte> out) {
      std::memcpy(out.data(), reinterpret_cast<const std::byte*>(values.data()) + offset, out.size());
    };
  };
  write_safetensors(path,
                    {{{"odd", DType::bf16, {7}}, from(half)},
                     {{"big", DType::f32, {600, 1000}}, from(full)},
                     {{"none", DType::f32, {0}}, from(full)}},
                    {{"format", "pt"}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  std::vector<float> out(600'000);
  file.read(*file.find("big"), 0, 600'000, out.data());
  EXPECT_EQ(out, full);
  file.read(*file.find("odd"), 0, 7, out.data());
  EXPECT_EQ(out[6], 6);
  EXPECT_EQ(file.find("big")->begin % 4, 0u) << "aligned to its element";
  const std::string raw = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, raw.data(), 8);
  EXPECT_EQ(header % 8, 0u);
}

TEST(SafetensorsWriter, IncompleteTensorsAreNotCommitted) {
  TempDir dir;
  {
    SafetensorsWriter writer(dir.path() / "x", {{"a", DType::f32, {4}}});
    const std::vector<std::byte> bytes(12);
    writer.write("a", 0, bytes);
    expect_error(ErrorKind::internal, {"12 bytes of a", "expected 16"}, [&] { writer.commit(); });
    expect_error(ErrorKind::internal, {"a"}, [&] { writer.write("a", 8, bytes); });
    expect_error(ErrorKind::internal, {"zz"}, [&] { writer.write("zz", 0, bytes); });
  }
  EXPECT_TRUE(list_folder(dir.path()).empty());
}

TEST(WeightFolder, OneFileOrShards) {
  for (uint64_t max_shard : {5'000ull, 1'000ull, 400ull, 1ull}) {
    TempDir dir;
    write_folder(dir.path(), max_shard, 0);
    expect_three(dir.path(), 0);
    const size_t files = max_shard >= 2'000 ? 1 : max_shard >= 1'000 ? 3 : 4;  // with the index
    EXPECT_EQ(list_folder(dir.path()).size(), files) << max_shard;
  }
}

TEST(WeightFolder, NewWeightsReplaceOldOnesHoweverTheyWereCut) {
  TempDir dir;
  float salt = 0;
  for (uint64_t max_shard : {5'000, 1, 1'000, 5'000, 1'000}) {
    write_folder(dir.path(), max_shard, ++salt);
    expect_three(dir.path(), salt);
    EXPECT_EQ(list_folder(dir.path()).size(), max_shard == 5'000 ? 1u : max_shard == 1 ? 4u : 3u);
  }
}

TEST(WeightFolder, FullDiskLeavesTheOldWeights) {
  TempDir dir;
  write_folder(dir.path(), 1'000, 1);
  const auto before = list_folder(dir.path());
  for (int64_t left : {0, 100, 900, 2'000}) {
    FullDisk full(left);
    FileSystemOverride with(full);
    expect_error(ErrorKind::io, {"No space left"}, [&] { write_folder(dir.path(), 1'000, 2); });
    EXPECT_EQ(list_folder(dir.path()), before);
    expect_three(dir.path(), 1);
  }
}

TEST(WeightFolder, NamesWhatIsWrongWithTheIndex) {
  TempDir dir;
  const auto broken = [&](const std::vector<std::string>& parts) {
    expect_error(ErrorKind::data, parts, [&] { WeightFolder{dir.path()}; });
  };
  broken({"neither model.safetensors nor", "zeno init"});
  dir.write("pytorch_model.bin", "x");
  broken({"pytorch_model.bin is not supported"});
  const std::string index(kIndexName);
  dir.write(index, "{");
  broken({index, "not valid JSON"});
  dir.write(index, "{}");
  broken({index, "weight_map"});
  dir.write(index, R"({"weight_map":{"w":3}})");
  broken({index, "w: shard is a JSON number"});
  dir.write(index, R"({"weight_map":{"w":"../model.safetensors"}})");
  broken({index, "plain file name"});
  dir.write(index, R"({"weight_map":{"w":"model-00001-of-00002.safetensors"}})");
  broken({index, "model-00001-of-00002.safetensors", "not in the folder"});
  SafetensorsWriter(dir.path() / "model-00001-of-00002.safetensors", {}).commit();
  broken({index, "w is in model-00001-of-00002.safetensors", "it is not"});
}

}  // namespace
}  // namespace zeno::checkpoint
