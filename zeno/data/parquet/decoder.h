// The values of a page, one after the other, whatever their encoding. Decoders are views of the page's bytes
// and keep no more than their position, so a page may claim as many values as it likes. Damaged bytes are an
// Error(data) with only the reason.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <variant>
#include <vector>

#include "zeno/data/parquet/logical_type.h"
#include "zeno/data/parquet/metadata.h"

namespace zeno::data::parquet {

// Booleans are 0 and 1.
using Value = std::variant<int64_t, double, std::string_view>;

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Text and bytes stay valid until the next call.
  virtual Value next() = 0;
};

// The distinct values of a column chunk; views of the dictionary page.
using Dictionary = std::vector<Value>;
Dictionary read_dictionary(std::string_view bytes, int32_t count, const ValueType& type);

// Both outlive the decoder.
std::unique_ptr<Decoder> make_decoder(Encoding encoding, std::string_view bytes, const ValueType& type,
                                      const Dictionary& dictionary);

}  // namespace zeno::data::parquet
