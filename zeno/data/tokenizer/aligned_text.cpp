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

Rewriting::Rewriting(size_t input_bytes, bool track)
    : track_(track), most_(input_bytes + max_growth(input_bytes)), left_(max_growth(input_bytes)) {}

void Rewriting::check(size_t before, size_t after) const {
  require(after <= before + left_, ErrorKind::data,
          "[tokenizer] the tokenizer's normalizers expand one text to more than {} bytes", most_);
}

void Rewriting::count(size_t before, size_t after) {
  check(before, after);
  if (after > before) left_ -= after - before;
}

AlignedText::AlignedText(const Piece& piece, Rewriting& rewriting_)
    : begin(piece.start()), rewriting(&rewriting_) {
  const bool track = tracked();
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
  if (text.tracked()) origin_.reserve(in_.size());
}

void Rewriter::write(std::string_view bytes, TextSpan origin) {
  make_room(bytes.size());
  out_ += bytes;
  if (text_.tracked()) origin_.resize(out_.size(), origin);
}

TextSpan Rewriter::origin_before() const {
  if (!text_.tracked()) return {};
  return at_ == 0 ? TextSpan{text_.begin, text_.begin} : text_.origin[at_ - 1];
}

void Rewriter::keep() {
  const std::string_view bytes = next_bytes();
  write(bytes, text_.tracked() ? text_.origin[at_] : TextSpan{});
  at_ += bytes.size();
}

void Rewriter::replace(char32_t code) {
  make_room(kLongestUtf8);
  append_utf8(out_, code);
  if (text_.tracked()) origin_.resize(out_.size(), text_.origin[at_]);
  at_ += decode_char(in_, at_).bytes;
}

void Rewriter::remove() { at_ += decode_char(in_, at_).bytes; }

void Rewriter::insert(char32_t code) {
  make_room(kLongestUtf8);
  append_utf8(out_, code);
  if (text_.tracked()) origin_.resize(out_.size(), origin_before());
}

void Rewriter::insert(std::string_view text) { write(text, origin_before()); }

void Rewriter::prepend(std::string_view text) {
  write(text, text_.tracked() && !in_.empty() ? text_.origin[0] : TextSpan{});
}

void Rewriter::finish() {
  text_.rewriting->count(in_.size(), out_.size());
  text_.text = std::move(out_);
  text_.origin = std::move(origin_);
}

}  // namespace zeno::data::tokenizer
