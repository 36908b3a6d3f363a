#include "zeno/data/dataset/compressed_source.h"

#include <algorithm>
#include <span>
#include <utility>

#include "zeno/base/error.h"

namespace zeno::data {
namespace {

constexpr size_t kBuffer = size_t(256) << 10;
constexpr size_t kMagicBytes = 4;
constexpr uint64_t kUsualRatio = 4;  // of text

}  // namespace

Compression compression_of(std::string_view head) {
  using std::string_view_literals::operator""sv;
  if (head.starts_with("\x1f\x8b"sv)) return Compression::gzip;
  if (head.starts_with("\x28\xb5\x2f\xfd"sv)) return Compression::zstd;
  // A frame to be skipped: 50 2a 4d 18 to 5f 2a 4d 18.
  const bool skippable =
      head.size() >= kMagicBytes && (head[0] & 0xf0) == 0x50 && head.substr(1, 3) == "\x2a\x4d\x18"sv;
  return skippable ? Compression::zstd : Compression::none;
}

CompressedSource::CompressedSource(File file, Compression compression)
    : file_(std::move(file)),
      size_(file_.size()),
      compression_(compression),
      decompressor_(compression == Compression::gzip ? make_gzip_decompressor() : make_zstd_decompressor()) {}

uint64_t CompressedSource::size_hint() const { return (size_ - position()) * kUsualRatio; }

void CompressedSource::fill() {
  buffer_.erase(0, used_);
  used_ = 0;
  const size_t have = buffer_.size();
  buffer_.resize(std::min<uint64_t>(kBuffer, have + size_ - offset_));
  file_.read_at(buffer_.data() + have, buffer_.size() - have, offset_);
  offset_ += buffer_.size() - have;
}

// Goes to the start of the next member; false: the file has ended. gzip files may end in zeros, which tapes
// and block devices leave behind.
bool CompressedSource::skip_to_member() {
  while (true) {
    if (left().size() < kMagicBytes) fill();
    if (left().empty()) return false;
    if (compression_of(left()) == compression_) return true;
    const size_t zeros = std::min(left().find_first_not_of('\0'), left().size());
    const bool padding = compression_ == Compression::gzip && position() > 0 && zeros > 0;
    require(padding, ErrorKind::data,
            "[data] {}: got other bytes after the compressed data at byte {}; the file is damaged",
            file_.path().string(), position());
    used_ += zeros;
  }
}

size_t CompressedSource::read(char* out, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    if (!in_member_ && !skip_to_member()) break;
    if (left().empty()) fill();
    Decompressor::Step step;
    try {
      step = decompressor_->decode(left(), std::span(out + done, bytes - done));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      fail(ErrorKind::data, "[data] {}: {} near byte {}", file_.path().string(), error.what(), position());
    }
    used_ += step.consumed;
    done += step.produced;
    in_member_ = !step.ended;
    require(step.ended || step.consumed + step.produced > 0 || (left().empty() && offset_ < size_),
            ErrorKind::data, "[data] {}: the compressed data ends early at byte {}; is the file complete?",
            file_.path().string(), size_);
  }
  return done;
}

}  // namespace zeno::data
