// Text on its way from the input to the model, and the origin of each of its characters. A Piece is a view;
// an AlignedText owns what normalizers have written; a Rewriter makes the next AlignedText from the last one,
// character by character. Values that share nothing but the Rewriting of their text.
#pragma once

#include <string>
#include <string_view>

#include "zeno/base/utf8.h"
#include "zeno/data/text_span.h"
#include "zeno/data/tokenizer/normalize/origins.h"

namespace zeno::data::tokenizer {

// Without `origins` the text is the range of the input that starts at `begin`. With them, it is the range
// from `begin` on of a rewritten text. Rewritten text whose origins were not requested has neither.
struct Piece {
  std::string_view text;
  size_t begin = 0;
  const Origins* origins = nullptr;

  Piece part(size_t from, size_t to) const { return {text.substr(from, to - from), begin + from, origins}; }
  // Where in the input the piece starts.
  size_t start() const;
  // Input bytes of text[from, to): whole characters.
  TextSpan span(size_t from, size_t to) const;
};

// What all the rewriting of one input has in common. A file can ask for rewriting without end, piece by piece
// and step by step: what it adds is counted, and nothing that it removes again is given back.
class Rewriting {
 public:
  // `track`: origins are kept.
  Rewriting(size_t input_bytes, bool track);
  bool tracks() const { return track_; }
  // Error(data) if the rewriting of `before` bytes may not make `after` bytes of them.
  void check(size_t before, size_t after) const;
  void count(size_t before, size_t after);
  // About how long the input has become.
  size_t bytes() const { return bytes_; }

 private:
  bool track_;
  size_t bytes_;
  size_t most_;  // bytes that the input may become
  size_t left_;  // bytes that may still be added
};

struct AlignedText {
  std::string text;
  Origins origins;   // of the whole text when tracked
  size_t begin = 0;  // of the text in the input
  Rewriting* rewriting;

  // A copy of the piece; bytes that are not UTF-8 become U+FFFD. `rewriting` must outlive it.
  AlignedText(const Piece& piece, Rewriting& rewriting);
  bool tracked() const { return rewriting->tracks(); }
  Piece view() const { return tracked() ? Piece{text, 0, &origins} : Piece{text, begin}; }

 private:
  void copy_origins(const Piece& piece, size_t at, size_t end);
};

// Reads an AlignedText from left to right and replaces it by what was written, on finish().
class Rewriter {
 public:
  explicit Rewriter(AlignedText& text);
  bool more() const { return at_ < in_.size(); }
  size_t at() const { return at_; }  // in the text being read
  char32_t next() const { return decode_char(in_, at_).code; }
  std::string_view next_bytes() const { return in_.substr(at_, decode_char(in_, at_).bytes); }

  void keep();               // the next character as it is
  void keep_to(size_t end);  // all characters before `end` as they are
  void keep_rest() { keep_to(in_.size()); }
  void replace(char32_t code);  // another character in its place
  void remove();                // nothing in its place
  void insert(char32_t code);   // one more character; it belongs to the last one read
  void insert(std::string_view text);
  // Text before the first character, which it belongs to. Only at the start.
  void prepend(std::string_view text);
  void finish();

 private:
  void write(std::string_view bytes, TextSpan origin);
  void make_room(size_t bytes) const { text_.rewriting->check(in_.size(), out_.size() + bytes); }
  TextSpan origin_of_next() const;
  TextSpan origin_before() const;

  AlignedText& text_;
  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  Origins origins_;
};

}  // namespace zeno::data::tokenizer
