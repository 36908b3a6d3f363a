#include "zeno/data/parquet/decoder.h"

#include <bit>
#include <string>

#include "zeno/base/error.h"
#include "zeno/data/parquet/bits.h"
#include "zeno/data/parquet/delta.h"
#include "zeno/data/parquet/rle.h"

namespace zeno::data::parquet {
namespace {

constexpr const char* kTooFew = "the page has fewer values than it says";

// Bytes of a value that always has the same number of them; 0: it has not.
size_t width_of(const ValueType& type) {
  switch (type.physical) {
    case PhysicalType::int32:
    case PhysicalType::real32:
      return 4;
    case PhysicalType::int64:
    case PhysicalType::real64:
      return 8;
    case PhysicalType::int96:
      return 12;
    case PhysicalType::fixed_bytes:
      return size_t(type.length);
    case PhysicalType::boolean:
    case PhysicalType::bytes:
      break;
  }
  return 0;
}

Value value_of(std::string_view bytes, PhysicalType type) {
  switch (type) {
    case PhysicalType::int32:
      return int64_t(int32_t(load_little_endian(bytes)));
    case PhysicalType::int64:
      return int64_t(load_little_endian(bytes));
    case PhysicalType::real32:
      return double(std::bit_cast<float>(uint32_t(load_little_endian(bytes))));
    case PhysicalType::real64:
      return std::bit_cast<double>(load_little_endian(bytes));
    default:
      return bytes;
  }
}

std::string_view take(std::string_view& bytes, size_t size) {
  require(size <= bytes.size(), ErrorKind::data, kTooFew);
  const std::string_view taken = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return taken;
}

class PlainDecoder : public Decoder {
 public:
  PlainDecoder(std::string_view bytes, const ValueType& type)
      : bytes_(bytes), type_(type.physical), width_(width_of(type)) {}

  Value next() override {
    const size_t size = type_ == PhysicalType::bytes ? load_little_endian(take(bytes_, 4)) : width_;
    return value_of(take(bytes_, size), type_);
  }

 private:
  std::string_view bytes_;
  PhysicalType type_;
  size_t width_;
};

class PlainBooleanDecoder : public Decoder {
 public:
  explicit PlainBooleanDecoder(std::string_view bytes) : bytes_(bytes) {}

  Value next() override {
    require(bit_ / 8 < bytes_.size(), ErrorKind::data, kTooFew);
    return int64_t(load_bits(bytes_, bit_++, 1));
  }

 private:
  std::string_view bytes_;
  uint64_t bit_ = 0;
};

class RleBooleanDecoder : public Decoder {
 public:
  // Four bytes of length come first; what follows is all there is anyway.
  explicit RleBooleanDecoder(std::string_view bytes) {
    take(bytes, 4);
    bits_ = RleReader(bytes, 1);
  }
  Value next() override { return int64_t(bits_.next()); }

 private:
  RleReader bits_;
};

class DictionaryDecoder : public Decoder {
 public:
  // The first byte is the width of an index.
  DictionaryDecoder(std::string_view bytes, const Dictionary& dictionary)
      : dictionary_(dictionary), indices_(bytes.substr(1), uint8_t(bytes[0])) {}

  Value next() override {
    const uint32_t index = indices_.next();
    require(index < dictionary_.size(), ErrorKind::data, "got value {} of a dictionary of {}", index,
            dictionary_.size());
    return dictionary_[index];
  }

 private:
  const Dictionary& dictionary_;
  RleReader indices_;
};

class DeltaDecoder : public Decoder {
 public:
  DeltaDecoder(std::string_view bytes, PhysicalType type)
      : numbers_(bytes), narrow_(type == PhysicalType::int32) {}

  Value next() override {
    const int64_t value = numbers_.next();
    return narrow_ ? int64_t(int32_t(value)) : value;
  }

 private:
  DeltaReader numbers_;
  bool narrow_;  // differences wrap around at 32 bits
};

// All lengths, then all texts.
class DeltaLengthDecoder : public Decoder {
 public:
  explicit DeltaLengthDecoder(std::string_view bytes) : lengths_(bytes), texts_(lengths_.rest()) {}

  Value next() override {
    const int64_t length = lengths_.next();
    require(length >= 0, ErrorKind::data, "got a text of {} bytes", length);
    return take(texts_, size_t(length));
  }

 private:
  DeltaReader lengths_;
  std::string_view texts_;
};

// How much each text has in common with the one before, then the rest of each.
class DeltaTextDecoder : public Decoder {
 public:
  DeltaTextDecoder(std::string_view bytes, const ValueType& type)
      : prefixes_(bytes), suffixes_(prefixes_.rest()), width_(width_of(type)) {}

  Value next() override {
    const int64_t prefix = prefixes_.next();
    require(prefix >= 0 && uint64_t(prefix) <= text_.size(), ErrorKind::data,
            "got a text that shares {} bytes with one of {}", prefix, text_.size());
    text_.resize(size_t(prefix));
    text_ += std::get<std::string_view>(suffixes_.next());
    require(width_ == 0 || text_.size() == width_, ErrorKind::data, "got a value of {} bytes, expected {}",
            text_.size(), width_);
    return text_;
  }

 private:
  DeltaReader prefixes_;
  DeltaLengthDecoder suffixes_;
  size_t width_;
  std::string text_;
};

// The first bytes of all values, then their second bytes, and so on.
class SplitDecoder : public Decoder {
 public:
  SplitDecoder(std::string_view bytes, const ValueType& type)
      : bytes_(bytes),
        type_(type.physical),
        value_(width_of(type), '\0'),
        count_(bytes.size() / value_.size()) {}

  Value next() override {
    require(at_ < count_, ErrorKind::data, kTooFew);
    for (size_t i = 0; i < value_.size(); ++i) value_[i] = bytes_[i * count_ + at_];
    ++at_;
    return value_of(value_, type_);
  }

 private:
  std::string_view bytes_;
  PhysicalType type_;
  std::string value_;
  size_t count_, at_ = 0;
};

}  // namespace

Dictionary read_dictionary(std::string_view bytes, int32_t count, const ValueType& type) {
  require(type.physical != PhysicalType::boolean, ErrorKind::data, "got a dictionary of booleans");
  // Each value has at least a byte: only as many as there can be.
  require(size_t(count) <= bytes.size(), ErrorKind::data, "got a dictionary of {} values in {} bytes", count,
          bytes.size());
  Dictionary dictionary;
  dictionary.reserve(size_t(count));
  PlainDecoder values(bytes, type);
  for (int32_t i = 0; i < count; ++i) dictionary.push_back(values.next());
  return dictionary;
}

std::unique_ptr<Decoder> make_decoder(Encoding encoding, std::string_view bytes, const ValueType& type,
                                      const Dictionary& dictionary) {
  const PhysicalType physical = type.physical;
  const bool integer = physical == PhysicalType::int32 || physical == PhysicalType::int64;
  const bool text = physical == PhysicalType::bytes;
  // A page of nulls may have no bytes at all, whatever its encoding. Any decoder does that fails when asked.
  if (bytes.empty()) return std::make_unique<PlainBooleanDecoder>(bytes);
  switch (encoding) {
    case Encoding::plain:
      if (physical == PhysicalType::boolean) return std::make_unique<PlainBooleanDecoder>(bytes);
      return std::make_unique<PlainDecoder>(bytes, type);
    case Encoding::plain_dictionary:
    case Encoding::rle_dictionary:
      return std::make_unique<DictionaryDecoder>(bytes, dictionary);
    case Encoding::rle:
      if (physical == PhysicalType::boolean) return std::make_unique<RleBooleanDecoder>(bytes);
      break;
    case Encoding::delta_binary_packed:
      if (integer) return std::make_unique<DeltaDecoder>(bytes, physical);
      break;
    case Encoding::delta_length_byte_array:
      if (text) return std::make_unique<DeltaLengthDecoder>(bytes);
      break;
    case Encoding::delta_byte_array:
      if (text || physical == PhysicalType::fixed_bytes)
        return std::make_unique<DeltaTextDecoder>(bytes, type);
      break;
    case Encoding::byte_stream_split:
      if (width_of(type) > 0) return std::make_unique<SplitDecoder>(bytes, type);
      break;
    case Encoding::bit_packed:
      break;
  }
  fail(ErrorKind::data, "encoding {} does not go with physical type {}", int(encoding), int(physical));
}

}  // namespace zeno::data::parquet
