// The encodings by themselves: what writers other than pyarrow may do, and bytes that claim more values than
// memory could hold.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/support/expect_error.h"
#include "zeno/data/parquet/decoder.h"
#include "zeno/data/parquet/delta.h"
#include "zeno/data/parquet/json_value.h"
#include "zeno/data/parquet/rle.h"
#include "zeno/data/parquet/thrift.h"
#include "zeno/data/parquet/varint.h"

namespace zeno::data::parquet {
namespace {

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += char(value | 128);
  return bytes + char(value);
}
std::string zigzag(int64_t value) { return varint(uint64_t(value) << 1 ^ uint64_t(value >> 63)); }

// Packs values to `width` bits each, lowest first.
std::string packed(const std::vector<uint64_t>& values, int width) {
  std::string bytes((values.size() * size_t(width) + 7) / 8, '\0');
  size_t bit = 0;
  for (const uint64_t value : values) {
    for (int i = 0; i < width; ++i, ++bit) bytes[bit / 8] |= char((value >> i & 1) << (bit % 8));
  }
  return bytes;
}

TEST(Varint, RoundTripsAndEnds) {
  for (const int64_t value : {int64_t(0), int64_t(-1), int64_t(300), std::numeric_limits<int64_t>::min(),
                              std::numeric_limits<int64_t>::max()}) {
    size_t at = 0;
    EXPECT_EQ(unzigzag(read_varint(zigzag(value), at)), value);
    EXPECT_EQ(at, zigzag(value).size());
  }
  size_t at = 0;
  test::expect_error(ErrorKind::data, {"ends early"}, [&] { read_varint("\x80\x80", at); });
  at = 0;
  test::expect_error(ErrorKind::data, {"ten bytes"}, [&] { read_varint(std::string(20, '\x80'), at); });
}

TEST(Rle, RunsAndGroupsOfEveryWidth) {
  std::mt19937_64 random(7);
  for (int width = 1; width <= 32; ++width) {
    const uint64_t mask = (uint64_t(1) << width) - 1;
    std::vector<uint64_t> group(16), expected;
    for (uint64_t& value : group) value = random() & mask;
    const uint64_t repeated = random() & mask;
    const std::string bytes = varint(5 << 1) + packed({repeated}, (width + 7) / 8 * 8) + varint(2 << 1 | 1) +
                              packed(group, width) + varint(0) + packed({0}, (width + 7) / 8 * 8) +
                              varint(1 << 1) + packed({repeated}, (width + 7) / 8 * 8);
    expected.assign(5, repeated);
    expected.insert(expected.end(), group.begin(), group.end());
    expected.push_back(repeated);
    RleReader reader(bytes, width);
    for (const uint64_t value : expected) ASSERT_EQ(reader.next(), value) << "width " << width;
    test::expect_error(ErrorKind::data, {"fewer values"}, [&] { reader.next(); });
  }
}

TEST(Rle, ClaimsCostNothing) {
  // Readers are views: the bytes need names.
  const std::string run = varint(uint64_t(1) << 60) + '\x05';
  RleReader billions(run, 3);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(billions.next(), 5u);
  const std::string groups = varint((uint64_t(1) << 60) + 1);
  RleReader none(groups, 0);
  EXPECT_EQ(none.next(), 0u);
  const std::string one = varint(1000 << 1 | 1) + "\xff";  // of a thousand groups
  RleReader cut(one, 1);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(cut.next(), 1u);
  test::expect_error(ErrorKind::data, {"fewer values"}, [&] { cut.next(); });
  test::expect_error(ErrorKind::data, {"33 bits"}, [] { RleReader("", 33); });
}

TEST(Delta, BlocksOfEveryWidth) {
  std::mt19937_64 random(7);
  for (int width = 0; width <= 64; ++width) {
    const uint64_t mask = width == 64 ? ~uint64_t(0) : (uint64_t(1) << width) - 1;
    std::vector<uint64_t> deltas(32);
    for (uint64_t& delta : deltas) delta = random() & mask;
    const int64_t min_delta = -17;
    const std::string bytes = varint(64) + varint(2) + varint(33) + zigzag(1000) + zigzag(min_delta) +
                              std::string{char(width), '\x7f'} + packed(deltas, width) + "rest";
    DeltaReader reader(bytes);
    EXPECT_EQ(reader.rest(), "rest");
    uint64_t value = 1000;
    ASSERT_EQ(reader.next(), int64_t(value));
    for (const uint64_t delta : deltas) {
      value += uint64_t(min_delta) + delta;
      ASSERT_EQ(reader.next(), int64_t(value)) << "width " << width;
    }
    EXPECT_EQ(reader.rest(), "rest");
    test::expect_error(ErrorKind::data, {"fewer values"}, [&] { reader.next(); });
  }
}

TEST(Delta, ClaimsCostNothing) {
  const auto header = [](uint64_t block, uint64_t parts, uint64_t count) {
    return varint(block) + varint(parts) + varint(count) + zigzag(0);
  };
  for (const auto& [block, parts] : std::vector<std::pair<uint64_t, uint64_t>>{
           {0, 1}, {128, 0}, {128, 3}, {4, 1}, {uint64_t(1) << 40, 8}}) {
    test::expect_error(ErrorKind::data, {"differences in"}, [&] { DeltaReader(header(block, parts, 9)); });
  }
  const std::string block = header(128, 4, uint64_t(1) << 62) + zigzag(1) + std::string(4, '\0');
  DeltaReader many(block);
  for (int i = 0; i < 129; ++i) EXPECT_EQ(many.next(), i);
  EXPECT_THROW(many.next(), Error);
  EXPECT_THROW(many.rest(), Error);
}

TEST(Dictionary, OnlyAsManyValuesAsBytes) {
  const ValueType text{.physical = PhysicalType::bytes};
  test::expect_error(ErrorKind::data, {"2000000000 values in 4 bytes"},
                     [&] { read_dictionary(std::string(4, '\0'), 2'000'000'000, text); });
  const std::string page("\1\0\0\0a\0\0\0\0", 9);
  const Dictionary two = read_dictionary(page, 2, text);
  ASSERT_EQ(two.size(), 2u);
  const std::string indices = std::string("\x01") + varint(1 << 1) + "\1";  // width, a run, its value
  const auto values = make_decoder(Encoding::rle_dictionary, indices, text, two);
  EXPECT_EQ(std::get<std::string_view>(values->next()), "");
  const auto beyond = make_decoder(Encoding::rle_dictionary, "\x02\x02\x03", text, two);
  test::expect_error(ErrorKind::data, {"value 3 of a dictionary of 2"}, [&] { beyond->next(); });
}

TEST(Encodings, ThatDoNotGoWithATypeAreRefused) {
  const ValueType text{.physical = PhysicalType::bytes};
  for (const Encoding encoding :
       {Encoding::delta_binary_packed, Encoding::byte_stream_split, Encoding::rle}) {
    test::expect_error(ErrorKind::data, {"does not go with"}, [&] { make_decoder(encoding, "x", text, {}); });
  }
}

TEST(JsonValue, TimesBeyondTheCalendarStayNumbers) {
  const ValueType stamp{.physical = PhysicalType::int64,
                        .logical = {.meaning = Meaning::timestamp, .fraction_digits = 3, .utc = true}};
  const int64_t far = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(json_value(far, stamp), Json(far));
  EXPECT_EQ(json_value(int64_t(-1), stamp), Json("1969-12-31T23:59:59.999Z"));
  const ValueType day{.physical = PhysicalType::int32, .logical = {.meaning = Meaning::date}};
  EXPECT_EQ(json_value(int64_t(-719'529), day), Json("-001-12-31"));
  EXPECT_EQ(json_value(int64_t(2'000'000'000), day), Json(2'000'000'000));
}

TEST(JsonValue, BytesThatAreNoTextAreNoText) {
  const ValueType text{.physical = PhysicalType::bytes, .logical = {.meaning = Meaning::text}};
  EXPECT_TRUE(json_value(std::string_view("\xff\xfe"), text).is_binary());
  EXPECT_EQ(json_value(std::string_view("ä"), text), Json("ä"));
}

TEST(Thrift, NothingIsBelieved) {
  const auto skip = [](std::string_view bytes) {
    ThriftReader in(bytes);
    in.skip(ThriftType::structure);
    return in.position();
  };
  EXPECT_EQ(skip(std::string_view("\x15\x02\x00", 3)), 3u);
  const std::string deep(100'000, '\x1c');  // a struct in a struct in a struct
  test::expect_error(ErrorKind::data, {"nested deeper"}, [&] { skip(deep); });
  const std::string lists = "\x19" + std::string(100'000, '\x19');  // a list of a list of a list
  test::expect_error(ErrorKind::data, {"nested deeper"}, [&] { skip(lists); });
  test::expect_error(ErrorKind::data, {"ends early"}, [&] { skip("\x19\xf8\xff\xff\xff\xff\x0f"); });
  test::expect_error(ErrorKind::data, {"ends early"}, [&] { skip("\x18\x7f"); });
  test::expect_error(ErrorKind::data, {"unknown type"}, [&] { skip("\x1f"); });
}

}  // namespace
}  // namespace zeno::data::parquet
