// Decompression of gzip and zstd in memory, piece by piece, and of snappy in one go. A decompressor owns what
// the library underneath keeps: tables and a window, at most 128 MiB. One thread. Damaged bytes are an
// Error(data) with only the reason; after one a decompressor is of no further use.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace zeno::data {

class Decompressor {
 public:
  struct Step {
    size_t consumed = 0, produced = 0;
    bool ended = false;  // a gzip member or zstd frame is complete; another may follow
  };
  virtual ~Decompressor() = default;
  // Decompresses from `in` to `out` until one of them is used up or a member ends. The call after that begins
  // the next one.
  virtual Step decode(std::string_view in, std::span<char> out) = 0;
};

std::unique_ptr<Decompressor> make_gzip_decompressor();  // zlib's own format too
std::unique_ptr<Decompressor> make_zstd_decompressor();

// All of `in` becomes exactly all of `out`, or it is an error.
void decompress_all(Decompressor& decompressor, std::string_view in, std::span<char> out);
void decompress_snappy(std::string_view in, std::span<char> out);

uint32_t crc32_of(std::string_view bytes);  // gzip's checksum

}  // namespace zeno::data
