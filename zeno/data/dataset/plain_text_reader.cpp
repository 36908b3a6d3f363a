#include "zeno/data/dataset/plain_text_reader.h"

#include "zeno/base/error.h"

namespace zeno::data {
namespace {

bool is_space(char c) { return kSpace.find(c) != std::string_view::npos; }
bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Where to cut a text of more than `limit` bytes: at a line's end, since tokenizers split there anyway; else
// at a space, else between two characters.
size_t cut_of(std::string_view text, size_t limit) {
  for (size_t at = limit; at > limit / 2; --at) {
    if (text[at - 1] == '\n' && !is_space(text[at])) return at;
  }
  for (size_t at = limit; at > limit / 2; --at) {
    if (is_space(text[at]) && !is_space(text[at - 1])) return at;
  }
  size_t at = limit;
  while (at > 1 && continues_character(text[at])) --at;
  return at;
}

}  // namespace

void PlainTextReader::next(std::vector<RawRecord>& out) {
  out.clear();
  while (out.empty() && !done_) {
    text_.fill();
    take(out);
    done_ = text_.done();
  }
}

void PlainTextReader::take(std::vector<RawRecord>& out) {
  while (!text_.unread().empty()) {
    const std::string_view unread = text_.unread();
    const bool last = text_.at_end() && unread.size() <= options_.text_bytes;
    if (!last && unread.size() <= options_.text_bytes) return;
    const size_t end = last ? unread.size() : cut_of(unread, options_.text_bytes);
    const std::string_view piece = unread.substr(0, end);
    const size_t zero = piece.find('\0');
    require(zero == std::string_view::npos, ErrorKind::data,
            "[data] {}: got a zero byte at {}, expected plain text, JSON, CSV or a token file; other binary "
            "formats are not supported",
            text_.path().string(), taken_ + zero);
    out.push_back({.text = std::string(piece), .line = 0, .first = first_, .last = last, .error = {}});
    first_ = false;
    taken_ += end;
    text_.consume(end);
  }
}

}  // namespace zeno::data
