// Any bytes as compressed ones: as a file of several members, read in small pieces, and as a block of a size
// that is known. Either they decompress or an Error(data) says why not.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "zeno/base/error.h"
#include "zeno/data/compression/decompressor.h"
#include "zeno/data/dataset/byte_source.h"

namespace {

using namespace zeno;
using namespace zeno::data;

constexpr size_t kMaxBytes = 1 << 20;  // a few bytes can become billions

template <class F>
void guarded(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) std::abort();
  }
}

void read_file_of(std::string_view bytes) {
  static const int fd = ::memfd_create("fuzz", 0);
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, bytes.data(), bytes.size(), 0) != ssize_t(bytes.size()))
    std::abort();
  guarded([&] {
    const auto source = open_bytes("/proc/self/fd/" + std::to_string(fd));
    std::array<char, 777> piece;
    for (size_t all = 0, got = piece.size(); got == piece.size() && all < kMaxBytes; all += got) {
      got = source->read(piece.data(), piece.size());
      if (got > piece.size() || source->position() > bytes.size()) std::abort();
    }
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_file_of(text);
  // The magic is hard to guess.
  read_file_of("\x1f\x8b" + std::string(text));
  read_file_of("\x28\xb5\x2f\xfd" + std::string(text));
  for (const size_t bytes : {size_t(0), size / 2, size, 4 * size}) {
    std::string out(bytes, '\0');
    guarded([&] { decompress_snappy(text, out); });
    guarded([&] { decompress_all(*make_gzip_decompressor(), text, out); });
    guarded([&] { decompress_all(*make_zstd_decompressor(), text, out); });
  }
  return 0;
}
