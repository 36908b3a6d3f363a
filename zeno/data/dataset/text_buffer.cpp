#include "zeno/data/dataset/text_buffer.h"

#include <algorithm>

#include "zeno/base/error.h"

namespace zeno::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace

TextBuffer::TextBuffer(const Path& path, const ReaderOptions& options)
    : path_(path), options_(options), bytes_(open_bytes(path)) {}

void TextBuffer::fill() {
  buffer_.erase(0, used_);
  used_ = 0;
  const size_t have = buffer_.size();
  size_t more = std::max(options_.piece_bytes, have);
  if (!started_) more = std::max(more, kByteOrderMark.size());
  // One byte beyond the end tells that it is the end.
  more = size_t(std::min<uint64_t>(more, std::max<uint64_t>(bytes_->size_hint(), 1 << 16) + 1));
  buffer_.resize(have + more);
  const size_t got = bytes_->read(buffer_.data() + have, more);
  buffer_.resize(have + got);
  ended_ = got < more;
  if (!started_ && buffer_.starts_with(kByteOrderMark)) used_ = kByteOrderMark.size();
  started_ = true;
}

void TextBuffer::consume(size_t bytes) {
  line_ += uint32_t(std::ranges::count(unread().substr(0, bytes), '\n'));
  used_ += bytes;
  // A long record must not stay here as well while it is worked on.
  const bool roomy = buffer_.capacity() > 4 * options_.piece_bytes;
  if (roomy && used_ > buffer_.capacity() / 2) {
    std::string(unread()).swap(buffer_);  // an assignment would keep the room
    used_ = 0;
  }
}

void TextBuffer::skip_space() { consume(std::min(unread().find_first_not_of(kSpace), unread().size())); }

std::string TextBuffer::length_problem() const {
  return fmt::format("got a record of more than {} bytes", options_.record_bytes);
}

void TextBuffer::check_length(size_t bytes) const {
  if (too_long(bytes)) fail_here(length_problem());
}

void TextBuffer::fail_at(uint32_t line, std::string_view reason) const {
  fail(ErrorKind::data, "[data] {}:{}: {}", path_.string(), line, reason);
}

}  // namespace zeno::data
