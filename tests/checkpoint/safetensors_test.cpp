#include "zeno/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace zeno::checkpoint {
namespace {

using test::expect_error;
using test::TempDir;

std::string file_with(const std::string& header, const std::string& data, uint64_t claimed = UINT64_MAX) {
  const uint64_t length = claimed == UINT64_MAX ? header.size() : claimed;
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string entry(const std::string& name, const std::string& type, const std::string& shape, uint64_t begin,
                  uint64_t end) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, type, shape, begin,
                     end);
}

// Opens the file and expects a data error naming it and the given parts.
void refused(const std::string& contents, std::vector<std::string> parts) {
  TempDir dir;
  const Path path = dir.write("bad.safetensors", contents);
  parts.push_back("bad.safetensors");
  expect_error(ErrorKind::data, parts, [&] { SafetensorsFile::open(path); });
}

TEST(Safetensors, ReadsEveryFloatTypeByRange) {
  TempDir dir;
  const std::vector<float> f32 = {1.5f, -2.25f, 3e-30f, 1e30f};
  const std::vector<BF16> bf16 = {BF16(1.0f), BF16(-0.5f), BF16(300.0f)};
  const std::vector<F16> f16 = {F16(0.25f), F16(-6e-8f), F16(65504.0f)};
  const std::vector<double> f64 = {0.1, -7};
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," + entry("a", "F32", "[2,2]", 0, 16) +
                             "," + entry("b", "BF16", "[3]", 16, 22) + "," +
                             entry("c", "F16", "[1,3]", 22, 28) + "," + entry("d", "F64", "[2]", 28, 44) +
                             "," + entry("e", "F32", "[0,5]", 44, 44) + "," +
                             entry("s", "F32", "[]", 44, 48) + "}  ";
  const Path path = dir.write("x", file_with(header, bytes_of(f32) + bytes_of(bf16) + bytes_of(f16) +
                                                         bytes_of(f64) + bytes_of(std::vector<float>{42})));
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.tensors().size(), 6u);
  EXPECT_EQ(file.find("zzz"), nullptr);
  const TensorInfo* a = file.find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(a->dtype, DType::f32);
  std::vector<float> out(3);
  file.read(*a, 1, 3, out.data());
  EXPECT_EQ(out, (std::vector<float>{-2.25f, 3e-30f, 1e30f}));
  file.read(*file.find("b"), 0, 3, out.data());
  EXPECT_EQ(out, (std::vector<float>{1.0f, -0.5f, 300.0f}));
  file.read(*file.find("c"), 0, 3, out.data());
  EXPECT_EQ(out, (std::vector<float>{0.25f, float(F16(-6e-8f)), 65504.0f}));
  file.read(*file.find("d"), 0, 2, out.data());
  EXPECT_EQ(out[0], 0.1f);
  file.read(*file.find("s"), 0, 1, out.data());
  EXPECT_EQ(out[0], 42);
  EXPECT_EQ(file.find("e")->count, 0);
  expect_error(ErrorKind::internal, {"a"}, [&] { file.read(*a, 2, 3, out.data()); });
}

TEST(Safetensors, ConvertsLongTensorsInPieces) {
  TempDir dir;
  std::vector<BF16> values(100'003);
  for (size_t i = 0; i < values.size(); ++i) values[i] = BF16(float(i % 257) - 100);
  const uint64_t bytes = values.size() * 2;
  const Path path =
      dir.write("x", file_with("{" + entry("a", "BF16", "[100003]", 0, bytes) + "}", bytes_of(values)));
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::vector<float> out(90'000);
  file.read(*file.find("a"), 10'001, 90'000, out.data());
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], float(values[i + 10'001])) << i;
}

TEST(Safetensors, RefusesBadLengths) {
  refused("", {"0 bytes"});
  refused("1234567", {"7 bytes", "cut short"});
  refused(file_with("{}", "", 1ull << 62), {"claims", "at most"});
  refused(file_with("{}", "", ~0ull - 7), {"claims", "at most"});
  refused(file_with("{}", "", 3), {"claims 3 bytes", "only 2"});
  refused(file_with("{", ""), {"not valid JSON"});
  refused(file_with("", ""), {"not valid JSON"});
  refused(file_with("[1]", ""), {"array", "expected an object"});
  refused(file_with(std::string(100'000, '['), ""), {"array", "expected an object"});
  refused(file_with("{\"w\":{\"a\":" + std::string(100'000, '['), ""), {"w", "nested deeper than 64 levels"});
  refused(file_with("{} x", ""), {"not valid JSON", "byte 3", "nothing after"});
  refused(file_with(std::string("{\0}", 3), ""), {"not valid JSON", "byte 1"});
  refused(file_with("{\"\xff\":1}", ""), {"not valid JSON", "UTF-8"});
}

TEST(Safetensors, RefusesLyingHeaders) {
  const std::string four(4, '\0'), eight(8, '\0');
  refused(file_with("{" + entry("w", "F32", "[2]", 0, 8) + "}", four), {"w", "[0, 8]", "4 bytes of data"});
  refused(file_with("{" + entry("w", "F32", "[1]", 0, 8) + "}", eight), {"w", "takes 4 bytes", "[0, 8]"});
  refused(file_with("{" + entry("w", "F32", "[2]", 8, 0) + "}", eight), {"w", "[8, 0]"});
  refused(file_with("{" + entry("w", "F32", "[1]", 0, 4) + "}", eight), {"end at byte 4", "holds 8"});
  refused(file_with("{" + entry("w", "F32", "[1]", 4, 8) + "}", eight), {"w", "begins at 4", "expected 0"});
  refused(file_with("{" + entry("v", "F32", "[1]", 0, 4) + "," + entry("w", "F32", "[1]", 2, 6) + "}", eight),
          {"w", "overlap", "v"});
  refused(file_with("{" + entry("v", "F32", "[1]", 0, 4) + "," + entry("v", "F32", "[1]", 4, 8) + "}", eight),
          {"v occurs twice"});
  refused(file_with("{" + entry("w", "F33", "[1]", 0, 4) + "}", four), {"w", "unknown dtype \"F33\""});
  refused(file_with("{" + entry("w", "F4", "[3]", 0, 1) + "}", "x"), {"w", "F4"});
  refused(file_with("{" + entry("w", "F32", "[-1]", 0, 4) + "}", four), {"w", "non-negative"});
  refused(file_with("{" + entry("w", "F32", "[1.5]", 0, 4) + "}", four), {"w", "1.5"});
  refused(file_with("{" + entry("w", "F32", "[1e30]", 0, 4) + "}", four), {"w", "shape"});
  refused(file_with("{" + entry("w", "F32", "3", 0, 4) + "}", four), {"w", "shape", "array"});
}

TEST(Safetensors, RefusesShapesThatOverflow) {
  const std::string huge = "4294967296";
  // 2^32 · 2^32 is 0 in 64 bits, and 2^62 · 4 elements of 4 bytes wrap to 0 too.
  refused(file_with("{" + entry("w", "F32", "[" + huge + "," + huge + "]", 0, 0) + "}", ""), {"w", "absurd"});
  refused(file_with("{" + entry("w", "F32", "[4611686018427387904]", 0, 0) + "}", ""), {"w", "absurd"});
  refused(file_with("{" + entry("w", "F32", "[18446744073709551615]", 0, 4) + "}", "1234"), {"w", "absurd"});
  refused(file_with("{" + entry("w", "F32", "[0,18446744073709551615]", 0, 0) + "}", ""), {"w", "absurd"});
  refused(file_with("{" + entry("w", "U8", "[1]", 18446744073709551615ull, 0) + "}", "1"), {"w"});
}

TEST(Safetensors, RefusesIncompleteEntries) {
  refused(file_with(R"({"w":{"shape":[1],"data_offsets":[0,4]}})", "1234"), {"w", "has no \"dtype\""});
  refused(file_with(R"({"w":{"dtype":"F32","data_offsets":[0,4]}})", "1234"), {"w", "has no \"shape\""});
  refused(file_with(R"({"w":{"dtype":"F32","shape":[1]}})", "1234"), {"w", "has no \"data_offsets\""});
  refused(file_with(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", "1234"), {"[begin, end]"});
  refused(file_with(R"({"w":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", "1234"),
          {"w", "dtype", "string"});
  refused(file_with(R"({"w":5})", ""), {"w", "object"});
  refused(file_with(R"({"__metadata__":{"a":1}})", ""), {"__metadata__", "a", "string"});
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = file_with(
      "{" + entry("v", "F32", "[2]", 0, 8) + "," + entry("w", "BF16", "[3]", 8, 14) + "}", "12345678abcdef");
  TempDir dir;
  for (size_t size = 0; size < whole.size(); ++size) {
    const Path path = dir.write("x", whole.substr(0, size));
    expect_error(ErrorKind::data, {"x"}, [&] { SafetensorsFile::open(path); });
  }
  EXPECT_EQ(SafetensorsFile::open(dir.write("x", whole)).tensors().size(), 2u);
}

TEST(Safetensors, ListsOtherTypesButRefusesToConvertThem) {
  TempDir dir;
  const Path path = dir.write("x", file_with("{" + entry("q", "F8_E4M3", "[2]", 0, 2) + "}", "ab"));
  const SafetensorsFile file = SafetensorsFile::open(path);
  float out[2];
  expect_error(ErrorKind::data, {"q", "F8_E4M3", "quantised"},
               [&] { file.read(*file.find("q"), 0, 2, out); });
  char raw[2];
  file.read_bytes(*file.find("q"), 0, 2, raw);
  EXPECT_EQ(std::string(raw, 2), "ab");
}

}  // namespace
}  // namespace zeno::checkpoint
