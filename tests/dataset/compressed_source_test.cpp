// .gz and .zst files as the bytes that were compressed, and what is wrong with files that are none.
#include "zeno/data/dataset/compressed_source.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace zeno::data {
namespace {

std::string gzip(const std::string& text) {
  std::string out(text.size() + text.size() / 100 + 100, '\0');
  z_stream zlib{};
  deflateInit2(&zlib, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  zlib.avail_in = uInt(text.size());
  zlib.next_out = reinterpret_cast<Bytef*>(out.data());
  zlib.avail_out = uInt(out.size());
  deflate(&zlib, Z_FINISH);
  out.resize(out.size() - zlib.avail_out);
  deflateEnd(&zlib);
  return out;
}

// With a checksum, as the command line writes it. `window_log` is that of --long.
std::string zstd(const std::string& text, int window_log = 0) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, window_log == 0);
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
  ZSTD_outBuffer to{out.data(), out.size(), 0};
  // In two parts: of the whole, the library would see that a small window does.
  for (const auto& [from, size, mode] : {std::tuple{size_t(0), text.size() / 2, ZSTD_e_flush},
                                         std::tuple{text.size() / 2, text.size(), ZSTD_e_end}}) {
    ZSTD_inBuffer in{text.data() + from, size - from, 0};
    ZSTD_compressStream2(context, &to, &in, mode);
  }
  ZSTD_freeCCtx(context);
  out.resize(to.pos);
  return out;
}

std::string random_text(size_t bytes) {
  std::mt19937 random(7);
  std::string text;
  while (text.size() < bytes) text += "word " + std::to_string(random() % 1000) + "\n";
  return text.substr(0, bytes);
}

class CompressedSourceTest : public testing::Test {
 protected:
  // All of it, in pieces of `piece` bytes.
  std::string unpack(const std::string& bytes, size_t piece) {
    const auto source = open_bytes(folder_.write("x.gz", bytes));
    std::string out;
    size_t size = 0;
    for (size_t got = piece; got == piece;) {
      out.resize(size + piece);
      got = source->read(out.data() + size, piece);
      size += got;
      EXPECT_LE(source->position(), bytes.size());
    }
    EXPECT_EQ(source->position(), bytes.size());
    out.resize(size);
    return out;
  }
  void expect_broken(const std::string& bytes, const std::vector<std::string>& parts) {
    test::expect_error(ErrorKind::data, parts, [&] { unpack(bytes, 1000); });
  }

  test::TempDir folder_{test::memory_folder()};
};

TEST_F(CompressedSourceTest, GivesWhatWasCompressedInPiecesOfAnySize) {
  for (const size_t size : {0, 1, 1000, 3'000'000}) {
    const std::string text = random_text(size);
    for (const size_t piece : {1000, 4096, 1 << 20}) {
      EXPECT_TRUE(unpack(gzip(text), piece) == text) << size << " in pieces of " << piece;
      EXPECT_TRUE(unpack(zstd(text), piece) == text) << size << " in pieces of " << piece;
    }
  }
  EXPECT_EQ(unpack(gzip("abc"), 1), "abc");
  EXPECT_EQ(unpack("plain", 2), "plain");
}

TEST_F(CompressedSourceTest, SeveralMembersAreOneStream) {
  EXPECT_EQ(unpack(gzip("a") + gzip("") + gzip("bc"), 10), "abc");
  EXPECT_EQ(unpack(zstd("a") + zstd("") + zstd("bc"), 10), "abc");
  EXPECT_EQ(unpack(gzip("a") + std::string(1000, '\0'), 10), "a");
  const std::string skipped = std::string("\x50\x2a\x4d\x18\x03\0\0\0xyz", 11);
  EXPECT_EQ(unpack(skipped + zstd("a") + skipped, 10), "a");
}

TEST_F(CompressedSourceTest, DamageIsAnErrorWithFileAndByte) {
  const std::string text = random_text(5000);
  for (const std::string& packed : {gzip(text), zstd(text)}) {
    expect_broken(packed.substr(0, packed.size() - 1), {"x.gz", "ends early at byte", "complete?"});
    expect_broken(packed.substr(0, 20), {"x.gz", "ends early at byte 20"});
    expect_broken(packed + "x", {"x.gz", "other bytes", std::to_string(packed.size())});
    expect_broken(packed + text, {"x.gz", "other bytes"});
  }
  std::string damaged = gzip(text);
  damaged[damaged.size() - 6] ^= 1;
  expect_broken(damaged, {"x.gz", "gzip data is damaged", "near byte"});
  damaged = zstd(text);
  damaged.back() ^= 1;
  expect_broken(damaged, {"x.gz", "zstd data is damaged", "checksum"});
  expect_broken(zstd(text, 28), {"x.gz", "more than 128 MiB", "--long"});
}

TEST_F(CompressedSourceTest, EveryByteFlippedGivesBytesOrAnError) {
  const std::string text = random_text(600);
  for (const std::string& packed : {gzip(text), zstd(text)}) {
    for (size_t at = 4; at < packed.size(); ++at) {
      std::string damaged = packed;
      damaged[at] ^= char(0x11);
      try {
        unpack(damaged, 1000);
      } catch (const Error& error) {
        EXPECT_EQ(int(error.kind()), int(ErrorKind::data)) << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace zeno::data
