#include "zeno/data/tokenizer/aligned_text.h"

#include <utility>

#include "zeno/base/error.h"
#include "zeno/data/tokenizer/limits.h"

namespace zeno::data::tokenizer {
namespace {

constexpr size_t kLongestUtf8 = 4;  // bytes of a character

}  // namespace

TextSpan Piece::span(size_t from, size_t to) const {
  if (!origin.empty()) return {origin[from].begin, origin[to - 1].end};
  const auto inside = [&](size_t i) { return (uint8_t(text[i]) & 0xc0) == 0x80; };
  while (from > 0 && inside(from)) --from;
  while (to < text.size() && inside(to)) ++to;
  return {begin + from, begin + to};
}

AlignedText::AlignedText(const Piece& piece, bool track)
    : tracked(track), begin(piece.start()), longest(max_rewritten(piece.text.size())) {
  text.reserve(piece.text.size());
  if (track) origin.reserve(piece.text.size());
  for (size_t at = 0; at < piece.text.size();) {
    const Utf8Char c = decode_char(piece.text, at);
    if (c.valid)
      text += piece.text.substr(at, c.bytes);
    else
      append_utf8(text, kReplacementCharacter);
    if (track) {
      const TextSpan from = piece.origin.empty() ? TextSpan{piece.begin + at, piece.begin + at + c.bytes}
                                                 : TextSpan{piece.origin[at].begin, piece.origin[at].end};
      origin.resize(text.size(), from);
    }
    at += c.bytes;
  }
}

Rewriter::Rewriter(AlignedText& text) : text_(text), in_(text.text) {
  out_.reserve(in_.size() + in_.size() / 8);
  if (text.tracked) origin_.reserve(in_.size());
}

void Rewriter::make_room(size_t bytes) const {
  require(out_.size() + bytes <= text_.longest, ErrorKind::data,
          "[tokenizer] the normalizers of the tokenizer make more than {} bytes of one text", text_.longest);
}

void Rewriter::write(std::string_view bytes, TextSpan origin) {
  make_room(bytes.size());
  out_ += bytes;
  if (text_.tracked) origin_.resize(out_.size(), origin);
}

TextSpan Rewriter::origin_before() const {
  if (!text_.tracked) return {};
  return at_ == 0 ? TextSpan{text_.begin, text_.begin} : text_.origin[at_ - 1];
}

void Rewriter::keep() {
  const std::string_view bytes = next_bytes();
  write(bytes, text_.tracked ? text_.origin[at_] : TextSpan{});
  at_ += bytes.size();
}

void Rewriter::replace(char32_t code) {
  make_room(kLongestUtf8);
  append_utf8(out_, code);
  if (text_.tracked) origin_.resize(out_.size(), text_.origin[at_]);
  at_ += decode_char(in_, at_).bytes;
}

void Rewriter::remove() { at_ += decode_char(in_, at_).bytes; }

void Rewriter::insert(char32_t code) {
  make_room(kLongestUtf8);
  append_utf8(out_, code);
  if (text_.tracked) origin_.resize(out_.size(), origin_before());
}

void Rewriter::insert(std::string_view text) { write(text, origin_before()); }

void Rewriter::prepend(std::string_view text) {
  write(text, text_.tracked && !in_.empty() ? text_.origin[0] : TextSpan{});
}

void Rewriter::finish() {
  text_.text = std::move(out_);
  text_.origin = std::move(origin_);
}

}  // namespace zeno::data::tokenizer
