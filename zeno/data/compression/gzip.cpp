// gzip through zlib.
#include <zlib.h>

#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/data/compression/decompressor.h"

namespace zeno::data {
namespace {

constexpr size_t kMaxStep = size_t(1) << 30;  // zlib counts in 32 bits
constexpr int kAnyHeader = 32;                // added to the size of the window: gzip's or zlib's header

class GzipDecompressor : public Decompressor {
 public:
  GzipDecompressor() {
    const int result = inflateInit2(&zlib_, MAX_WBITS + kAnyHeader);
    require(result == Z_OK, ErrorKind::memory, "[gzip] cannot start zlib: error {}", result);
  }
  ~GzipDecompressor() override { inflateEnd(&zlib_); }
  GzipDecompressor(const GzipDecompressor&) = delete;
  GzipDecompressor& operator=(const GzipDecompressor&) = delete;

  Step decode(std::string_view in, std::span<char> out) override {
    if (ended_) inflateReset(&zlib_);
    const size_t in_size = std::min(in.size(), kMaxStep), out_size = std::min(out.size(), kMaxStep);
    zlib_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    zlib_.avail_in = uInt(in_size);
    zlib_.next_out = out.empty() ? &nowhere_ : reinterpret_cast<Bytef*>(out.data());
    zlib_.avail_out = uInt(out_size);
    const int result = inflate(&zlib_, Z_NO_FLUSH);
    // Z_BUF_ERROR: nothing to read or no room to write; the caller sees that from the counts.
    require(result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR, ErrorKind::data,
            "the gzip data is damaged ({})", zlib_.msg ? zlib_.msg : "unknown reason");
    ended_ = result == Z_STREAM_END;
    return {in_size - zlib_.avail_in, out_size - zlib_.avail_out, ended_};
  }

 private:
  z_stream zlib_{};
  Bytef nowhere_ = 0;  // zlib wants an address even for no bytes
  bool ended_ = false;
};

}  // namespace

uint32_t crc32_of(std::string_view bytes) {
  return uint32_t(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::unique_ptr<Decompressor> make_gzip_decompressor() { return std::make_unique<GzipDecompressor>(); }

}  // namespace zeno::data
