#include "zeno/data/tokenizer/normalize/aligned_text.h"

#include <algorithm>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/data/tokenizer/limits.h"

namespace zeno::data::tokenizer {
namespace {

constexpr size_t kLongestUtf8 = 4;  // bytes of a character
constexpr size_t kMuchRoom = size_t(1) << 16;

}  // namespace

size_t Piece::start() const {
  if (origins == nullptr || text.empty()) return begin;
  return origins->run_at(begin).of(begin, 1).begin;
}

TextSpan Piece::span(size_t from, size_t to) const {
  const auto inside = [&](size_t i) { return (uint8_t(text[i]) & 0xc0) == 0x80; };
  while (from > 0 && inside(from)) --from;
  while (to < text.size() && inside(to)) ++to;
  if (origins == nullptr) return {begin + from, begin + to};
  size_t last = to - 1;
  while (last > from && inside(last)) --last;
  const size_t first = origins->run_at(begin + from).of(begin + from, 1).begin;
  return {first, origins->run_at(begin + last).of(begin + last, to - last).end};
}

Rewriting::Rewriting(size_t input_bytes, bool track)
    : track_(track),
      bytes_(input_bytes),
      most_(input_bytes + max_growth(input_bytes)),
      left_(max_growth(input_bytes)) {}

void Rewriting::check(size_t before, size_t after) const {
  require(after <= before + left_, ErrorKind::data,
          "[tokenizer] the tokenizer's normalizers expand one text to more than {} bytes", most_);
}

void Rewriting::count(size_t before, size_t after) {
  check(before, after);
  bytes_ += after;
  bytes_ -= std::min(bytes_, before);
  if (after > before) left_ -= after - before;
}

AlignedText::AlignedText(const Piece& piece, Rewriting& rewriting_)
    : begin(piece.start()), rewriting(&rewriting_) {
  const std::string_view in = piece.text;
  text.reserve(in.size());
  for (size_t at = 0; at < in.size();) {
    const size_t end = at + valid_utf8_run(in, at);
    text += in.substr(at, end - at);
    if (tracked()) copy_origins(piece, at, end);
    at = end;
    if (at == in.size()) break;
    const size_t before = text.size();
    append_utf8(text, kReplacementCharacter);
    if (tracked()) {
      const size_t byte = piece.begin + at;
      const TextSpan from =
          piece.origins == nullptr ? TextSpan{byte, byte + 1} : piece.origins->run_at(byte).of(byte, 1);
      origins.add(std::string_view(text).substr(before), from);
    }
    ++at;
  }
}

void AlignedText::copy_origins(const Piece& piece, size_t at, size_t end) {
  if (piece.origins == nullptr) return origins.add_copied(end - at, piece.begin + at);
  for (at += piece.begin, end += piece.begin; at < end;) {
    const Origins::Run& run = piece.origins->run_at(at);
    const size_t stop = std::min(end, run.end);
    origins.add_part(run, at, stop);
    at = stop;
  }
}

Rewriter::Rewriter(AlignedText& text) : text_(text), in_(text.text) {
  out_.reserve(in_.size() + in_.size() / 2);
}

void Rewriter::write(std::string_view bytes, TextSpan origin) {
  make_room(bytes.size());
  out_ += bytes;
  if (text_.tracked()) origins_.add(bytes, origin);
}

TextSpan Rewriter::origin_of_next() const {
  if (!text_.tracked()) return {};
  return text_.origins.run_at(at_).of(at_, decode_char(in_, at_).bytes);
}

TextSpan Rewriter::origin_before() const {
  if (!text_.tracked()) return {};
  if (at_ == 0) return {text_.begin, text_.begin};
  const size_t bytes = decode_char_before(in_, at_).bytes;
  return text_.origins.run_at(at_ - bytes).of(at_ - bytes, bytes);
}

void Rewriter::keep() { keep_to(at_ + decode_char(in_, at_).bytes); }

void Rewriter::keep_to(size_t end) {
  make_room(end - at_);
  out_ += in_.substr(at_, end - at_);
  while (text_.tracked() && at_ < end) {
    const Origins::Run& run = text_.origins.run_at(at_);
    const size_t stop = std::min(end, run.end);
    origins_.add_part(run, at_, stop);
    at_ = stop;
  }
  at_ = end;
}

void Rewriter::replace(char32_t code) {
  make_room(kLongestUtf8);
  const size_t before = out_.size();
  append_utf8(out_, code);
  if (text_.tracked()) origins_.add(std::string_view(out_).substr(before), origin_of_next());
  at_ += decode_char(in_, at_).bytes;
}

void Rewriter::remove() { at_ += decode_char(in_, at_).bytes; }

void Rewriter::insert(char32_t code) {
  make_room(kLongestUtf8);
  const size_t before = out_.size();
  append_utf8(out_, code);
  if (text_.tracked()) origins_.add(std::string_view(out_).substr(before), origin_before());
}

void Rewriter::insert(std::string_view text) { write(text, origin_before()); }

void Rewriter::prepend(std::string_view text) { write(text, in_.empty() ? TextSpan{} : origin_of_next()); }

void Rewriter::finish() {
  text_.rewriting->count(in_.size(), out_.size());
  in_ = {};
  std::string().swap(text_.text);
  if (out_.capacity() - out_.size() > kMuchRoom) out_.shrink_to_fit();
  text_.text = std::move(out_);
  text_.origins = std::move(origins_);
}

}  // namespace zeno::data::tokenizer
