// A .gz or .zst file as the bytes that were compressed: several gzip members or zstd frames are one stream.
// Memory is a small buffer and what the decompressor keeps. Bytes that are missing, damaged or foreign are an
// Error(data) with the file and the place in it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "zeno/data/compression/decompressor.h"
#include "zeno/data/dataset/byte_source.h"

namespace zeno::data {

enum class Compression { none, gzip, zstd };

// The compression of a file by its first bytes; four are enough.
Compression compression_of(std::string_view head);

class CompressedSource : public ByteSource {
 public:
  // REQUIRES: the file's first bytes are those of `compression`, which is not none.
  CompressedSource(File file, Compression compression);

  size_t read(char* out, size_t bytes) override;
  uint64_t position() const override { return offset_ - left().size(); }
  uint64_t size_hint() const override;

 private:
  std::string_view left() const { return std::string_view(buffer_).substr(used_); }
  void fill();
  bool skip_to_member();

  File file_;
  uint64_t size_, offset_ = 0;  // of the file; bytes read into the buffer so far
  Compression compression_;
  std::unique_ptr<Decompressor> decompressor_;
  std::string buffer_;
  size_t used_ = 0;
  bool in_member_ = false;
};

}  // namespace zeno::data
