// zstd through libzstd.
#include <zstd.h>
#include <zstd_errors.h>

#include "zeno/base/error.h"
#include "zeno/data/compression/decompressor.h"

namespace zeno::data {
namespace {

struct FreeContext {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

class ZstdDecompressor : public Decompressor {
 public:
  ZstdDecompressor() : context_(ZSTD_createDCtx()) {
    require(context_ != nullptr, ErrorKind::memory, "[zstd] no memory for decompression");
  }

  Step decode(std::string_view in, std::span<char> out) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const size_t result = ZSTD_decompressStream(context_.get(), &to, &from);
    require(ZSTD_getErrorCode(result) != ZSTD_error_frameParameter_windowTooLarge, ErrorKind::data,
            "the zstd data needs a window of more than 128 MiB; compress it again without --long");
    require(!ZSTD_isError(result), ErrorKind::data, "the zstd data is damaged ({})",
            ZSTD_getErrorName(result));
    return {from.pos, to.pos, result == 0};
  }

 private:
  std::unique_ptr<ZSTD_DCtx, FreeContext> context_;
};

}  // namespace

std::unique_ptr<Decompressor> make_zstd_decompressor() { return std::make_unique<ZstdDecompressor>(); }

}  // namespace zeno::data
