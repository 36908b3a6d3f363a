#include "zeno/data/parquet/thrift.h"

#include <limits>

#include "zeno/base/error.h"
#include "zeno/data/parquet/varint.h"

namespace zeno::data::parquet {
namespace {

constexpr int kMaxSkipDepth = 32;  // of what is skipped; what is read has a fixed depth

ThriftType type_of(int bits) {
  require(bits <= int(ThriftType::structure), ErrorKind::data, "metadata has a field of unknown type {}",
          bits);
  return ThriftType(bits);
}

void expect(ThriftType got, ThriftType expected) {
  require(got == expected, ErrorKind::data, "metadata has a field of type {}, expected {}", int(got),
          int(expected));
}

}  // namespace

uint8_t ThriftReader::take_byte() {
  require(at_ < bytes_.size(), ErrorKind::data, "metadata ends early");
  return uint8_t(bytes_[at_++]);
}

void ThriftReader::take(size_t bytes) {
  require(bytes <= bytes_.size() - at_, ErrorKind::data, "metadata ends early");
  at_ += bytes;
}

uint64_t ThriftReader::varint() { return read_varint(bytes_, at_); }
int64_t ThriftReader::zigzag() { return unzigzag(varint()); }

// Every element takes at least one byte, so no honest count exceeds what is left.
size_t ThriftReader::count_of(uint64_t count) const {
  require(count <= bytes_.size() - at_, ErrorKind::data, "metadata ends early");
  return size_t(count);
}

ThriftType ThriftReader::next_field(int& id) {
  const uint8_t head = take_byte();
  const ThriftType type = type_of(head & 15);
  if (type == ThriftType::stop) return type;
  const int64_t next = head >> 4 ? id + (head >> 4) : zigzag();
  require(next >= 0 && next <= std::numeric_limits<int16_t>::max(), ErrorKind::data,
          "metadata has a field with the number {}", next);
  id = int(next);
  return type;
}

size_t ThriftReader::list_size(ThriftType type, ThriftType element) {
  expect(type, ThriftType::list);
  const uint8_t head = take_byte();
  const size_t count = count_of(head >> 4 == 15 ? varint() : head >> 4);
  if (count > 0) expect(type_of(head & 15), element);
  return count;
}

bool ThriftReader::boolean(ThriftType type) const {
  require(type == ThriftType::yes || type == ThriftType::no, ErrorKind::data,
          "metadata has a field of type {}, expected a boolean", int(type));
  return type == ThriftType::yes;
}

int8_t ThriftReader::int8(ThriftType type) {
  expect(type, ThriftType::byte);
  return int8_t(take_byte());
}

int32_t ThriftReader::int32(ThriftType type) {
  expect(type, ThriftType::i32);
  const int64_t value = zigzag();
  require(value == int32_t(value), ErrorKind::data, "metadata has {}, expected a number of 32 bits", value);
  return int32_t(value);
}

int64_t ThriftReader::int64(ThriftType type) {
  expect(type, ThriftType::i64);
  return zigzag();
}

std::string_view ThriftReader::binary(ThriftType type) {
  expect(type, ThriftType::binary);
  const size_t size = count_of(varint());
  take(size);
  return bytes_.substr(at_ - size, size);
}

void ThriftReader::expect_struct(ThriftType type) const { expect(type, ThriftType::structure); }

void ThriftReader::skip(ThriftType type, int depth) {
  require(depth < kMaxSkipDepth, ErrorKind::data, "metadata is nested deeper than {} levels", kMaxSkipDepth);
  switch (type) {
    case ThriftType::stop:
      fail(ErrorKind::data, "metadata has a value without a type");
    case ThriftType::yes:
    case ThriftType::no:
      return;  // the type is the value
    case ThriftType::byte:
      return take(1);
    case ThriftType::i16:
    case ThriftType::i32:
    case ThriftType::i64:
      varint();
      return;
    case ThriftType::real:
      return take(8);
    case ThriftType::binary:
      return take(count_of(varint()));
    case ThriftType::list:
    case ThriftType::set:
      return skip_list(depth);
    case ThriftType::map:
      return skip_map(depth);
    case ThriftType::structure:
      return fields([&](int, ThriftType field) { skip(field, depth + 1); });
  }
}

void ThriftReader::skip_list(int depth) {
  const uint8_t head = take_byte();
  const size_t count = count_of(head >> 4 == 15 ? varint() : head >> 4);
  const ThriftType type = type_of(head & 15);
  // Inside a list a boolean is a byte of its own.
  if (type == ThriftType::yes || type == ThriftType::no) return take(count);
  for (size_t i = 0; i < count; ++i) skip(type, depth + 1);
}

void ThriftReader::skip_map(int depth) {
  const size_t count = count_of(varint());
  if (count == 0) return;
  const uint8_t types = take_byte();
  for (size_t i = 0; i < count; ++i) {
    for (const ThriftType type : {type_of(types >> 4), type_of(types & 15)}) {
      const bool flag = type == ThriftType::yes || type == ThriftType::no;
      skip(flag ? ThriftType::byte : type, depth + 1);
    }
  }
}

}  // namespace zeno::data::parquet
