// The bytes of a data file in the order in which records are read from it. A plain file gives its own bytes;
// a compressed one (gzip, zstd) gives its unpacked bytes, so that readers need not know.
//
// Owns the open file; for one thread. Calls block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "zeno/base/file.h"

namespace zeno::data {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Puts the next bytes into `out`: all that were asked for, or fewer at the end of the data.
  virtual size_t read(char* out, size_t bytes) = 0;
  // Bytes of the file on the disk that have been used, for progress.
  virtual uint64_t position() const = 0;
  // How many bytes are still to come, as far as is known; to size buffers.
  virtual uint64_t size_hint() const = 0;
};

// Compressed files are known by their first bytes.
std::unique_ptr<ByteSource> open_bytes(const Path& path);
// The beginning of what open_bytes gives, to tell what a file is.
std::string first_bytes(const Path& path, size_t bytes);

}  // namespace zeno::data
