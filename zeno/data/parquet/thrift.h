// Reads Thrift's compact protocol, in which Parquet writes its footer and its page headers. A view of bytes
// that the caller owns; lives no longer than they do. Nothing in the bytes is believed: sizes and counts are
// checked against what is left, depth is limited. Errors are an Error(data) with only the reason.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace zeno::data::parquet {

enum class ThriftType : uint8_t {
  stop,
  yes,
  no,
  byte,
  i16,
  i32,
  i64,
  real,
  binary,
  list,
  set,
  map,
  structure,
};

class ThriftReader {
 public:
  explicit ThriftReader(std::string_view bytes) : bytes_(bytes) {}

  // Calls field(id, type) for each field of the struct that starts here. The callback reads the value, or
  // skips it: it must do one of them.
  template <class F>
  void fields(F&& field) {
    int id = 0;
    while (true) {
      const ThriftType type = next_field(id);
      if (type == ThriftType::stop) return;
      field(id, type);
    }
  }
  // Calls element() for each struct of the list that starts here.
  template <class F>
  void structs(ThriftType type, F&& element) {
    const size_t count = list_size(type, ThriftType::structure);
    for (size_t i = 0; i < count; ++i) element();
  }

  // Each takes the type that the field is said to have; another one is an error.
  bool boolean(ThriftType type) const;
  int8_t int8(ThriftType type);
  int32_t int32(ThriftType type);
  int64_t int64(ThriftType type);
  std::string_view binary(ThriftType type);
  void expect_struct(ThriftType type) const;
  void skip(ThriftType type) { skip(type, 0); }

  size_t position() const { return at_; }

 private:
  ThriftType next_field(int& id);
  size_t list_size(ThriftType type, ThriftType element);
  void skip(ThriftType type, int depth);
  void skip_list(int depth);
  void skip_map(int depth);
  uint8_t take_byte();
  void take(size_t bytes);
  uint64_t varint();
  int64_t zigzag();
  size_t count_of(uint64_t count) const;

  std::string_view bytes_;
  size_t at_ = 0;
};

}  // namespace zeno::data::parquet
