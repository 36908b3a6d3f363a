#include "zeno/data/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "zeno/base/disk_operation.h"
#include "zeno/base/error.h"
#include "zeno/base/newer_version.h"

namespace zeno::data {
namespace {

static_assert(std::endian::native == std::endian::little,
              "token files are little-endian and are mapped as they are");

constexpr char kTokenFileMagic[8] = {'Z', 'E', 'N', 'O', 'T', 'O', 'K', '1'};
constexpr uint32_t kTokenFileVersion = 1;
constexpr int64_t kMaxVocab = std::numeric_limits<int32_t>::max();

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t width;  // bytes per token
  uint64_t vocab_size;
  uint64_t count;
  int64_t eos;  // -1: none
  uint64_t reserved[3];
};
static_assert(sizeof(Header) == 64);

void check_header(const Header& header, uint64_t file_bytes, const std::string& path) {
  if (header.version > kTokenFileVersion)
    throw NewerVersion(fmt::format("[token file] {}", path), "token file", header.version, kTokenFileVersion,
                       "write the file again with this one");
  require(header.version == kTokenFileVersion, ErrorKind::data,
          "[token file] {}: got version {}, expected {}; write the file again with this Zeno", path,
          header.version, kTokenFileVersion);
  require(header.width == 2 || header.width == 4, ErrorKind::data,
          "[token file] {}: got a token width of {} bytes, expected 2 or 4", path, header.width);
  require(header.vocab_size >= 1 && header.vocab_size <= uint64_t(kMaxVocab), ErrorKind::data,
          "[token file] {}: got a vocabulary of {}, expected 1..{}", path, header.vocab_size, kMaxVocab);
  require(header.eos >= -1 && header.eos < int64_t(header.vocab_size), ErrorKind::data,
          "[token file] {}: got eos id {}, expected -1 (none) or below {}", path, header.eos,
          header.vocab_size);
  // Compared as counts: count * width of a lying header could overflow.
  const uint64_t data_bytes = file_bytes - sizeof(Header);
  require(header.count <= data_bytes / header.width, ErrorKind::data,
          "[token file] {}: truncated: got room for {} tokens, expected {} as the header says; copy or write "
          "it again",
          path, data_bytes / header.width, header.count);
  require(header.count * header.width == data_bytes, ErrorKind::data,
          "[token file] {}: got {} bytes after the header, expected {} ({} tokens)", path, data_bytes,
          header.count * header.width, header.count);
}

template <class T>
void write_tokens(File& file, std::span<const int32_t> tokens) {
  constexpr size_t kPiece = 1 << 18;
  std::vector<T> piece(std::min(kPiece, tokens.size()));
  for (size_t begin = 0; begin < tokens.size(); begin += kPiece) {
    const auto part = tokens.subspan(begin, std::min(kPiece, tokens.size() - begin));
    std::ranges::transform(part, piece.begin(), [](int32_t id) { return T(id); });
    file.write_at(piece.data(), part.size() * sizeof(T), sizeof(Header) + begin * sizeof(T));
  }
}

}  // namespace

TokenFile::TokenFile(const Path& path) : path_(path), mapping_(path) {
  static_assert(kHeaderBytes == sizeof(Header));
  const auto bytes = mapping_.bytes();
  const bool magic = bytes.size() >= sizeof(kTokenFileMagic) &&
                     std::memcmp(bytes.data(), kTokenFileMagic, sizeof(kTokenFileMagic)) == 0;
  require(magic, ErrorKind::data, "[token file] {}: wrong magic: expected a file that starts with ZENOTOK1",
          path.string());
  require(bytes.size() >= sizeof(Header), ErrorKind::data,
          "[token file] {}: truncated: got {} bytes, expected a header of {}", path.string(), bytes.size(),
          sizeof(Header));
  Header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  check_header(header, bytes.size(), path.string());
  width_ = header.width;
  count_ = int64_t(header.count);
  vocab_size_ = int64_t(header.vocab_size);
  if (header.eos >= 0) eos_ = int32_t(header.eos);
}

void TokenFile::copy(int64_t begin, std::span<int32_t> out) const {
  ensure(begin >= 0 && begin + int64_t(out.size()) <= count_,
         "[token file] {}: got range {}+{}, expected within {}", path_.string(), begin, out.size(), count_);
  const DiskOperation waiting("reading", path_);  // the pages may have to come first
  visit([&](auto tokens) {
    std::ranges::transform(tokens.subspan(size_t(begin), out.size()), out.begin(),
                           [](auto id) { return int32_t(id); });
  });
}

bool is_token_file(const Path& path) {
  const File file = File::open(path);
  char magic[sizeof(kTokenFileMagic)];
  if (file.size() < sizeof(magic)) return false;
  file.read_at(magic, sizeof(magic), 0);
  return std::memcmp(magic, kTokenFileMagic, sizeof(kTokenFileMagic)) == 0;
}

void write_token_file(const Path& path, const TokenFileInfo& info, std::span<const int32_t> tokens) {
  require(info.vocab_size >= 1 && info.vocab_size <= kMaxVocab, ErrorKind::data,
          "[token file] {}: got a vocabulary of {}, expected 1..{}", path.string(), info.vocab_size,
          kMaxVocab);
  const auto outside = [&](int32_t id) { return id < 0 || id >= info.vocab_size; };
  require(!info.eos || !outside(*info.eos), ErrorKind::data, "[token file] {}: got eos id {}, expected 0..{}",
          path.string(), info.eos.value_or(-1), info.vocab_size - 1);
  const auto bad = std::ranges::find_if(tokens, outside);
  require(bad == tokens.end(), ErrorKind::data, "[token file] {}: token {}: got id {}, expected 0..{}",
          path.string(), bad - tokens.begin(), bad == tokens.end() ? 0 : *bad, info.vocab_size - 1);

  Header header{};
  std::memcpy(header.magic, kTokenFileMagic, sizeof(kTokenFileMagic));
  header.version = kTokenFileVersion;
  header.width = info.vocab_size <= 65536 ? 2 : 4;
  header.vocab_size = uint64_t(info.vocab_size);
  header.count = tokens.size();
  header.eos = info.eos.value_or(-1);
  ReplacingFile output(path);
  output.file().write_at(&header, sizeof(header), 0);
  if (header.width == 2) {
    write_tokens<uint16_t>(output.file(), tokens);
  } else {
    write_tokens<uint32_t>(output.file(), tokens);
  }
  output.commit();
}

}  // namespace zeno::data
