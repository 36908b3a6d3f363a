#include "zeno/data/compression/decompressor.h"

#include <snappy.h>

#include "zeno/base/error.h"

namespace zeno::data {

void decompress_all(Decompressor& decompressor, std::string_view in, std::span<char> out) {
  const size_t expected = out.size();
  bool ended = false;
  while (!in.empty() || !ended) {
    const Decompressor::Step step = decompressor.decode(in, out);
    ended = step.ended;
    in.remove_prefix(step.consumed);
    out = out.subspan(step.produced);
    if (ended || step.consumed + step.produced > 0) continue;
    require(!out.empty(), ErrorKind::data, "decompresses to more than {} bytes", expected);
    fail(ErrorKind::data, "the compressed data ends early");
  }
  require(out.empty(), ErrorKind::data, "decompresses to {} bytes, expected {}", expected - out.size(),
          expected);
}

void decompress_snappy(std::string_view in, std::span<char> out) {
  size_t size = 0;
  require(snappy::GetUncompressedLength(in.data(), in.size(), &size), ErrorKind::data,
          "the snappy data has no length");
  require(size == out.size(), ErrorKind::data, "decompresses to {} bytes, expected {}", size, out.size());
  require(snappy::RawUncompress(in.data(), in.size(), out.data()), ErrorKind::data,
          "the snappy data is damaged");
}

}  // namespace zeno::data
