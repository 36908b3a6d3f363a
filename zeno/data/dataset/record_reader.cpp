#include "zeno/data/dataset/record_reader.h"

#include <algorithm>

#include "zeno/base/error.h"

namespace zeno::data {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr size_t kNone = std::string_view::npos;

bool is_space(char c) { return kSpace.find(c) != kNone; }
bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Where the JSON value at the start of `text` ends; kNone: not in sight. Brackets and quotes decide, so a
// broken value ends somewhere too, and is reported when it is parsed.
size_t value_end(std::string_view text) {
  int64_t depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        quoted = false;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (depth == 0 && (c == ',' || c == ']' || c == '}')) {
      return i;
    } else if (c == '}' || c == ']') {
      if (--depth == 0) return i + 1;
    }
  }
  return kNone;
}

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

RecordReader::RecordReader(const InputFile& file, const ReaderOptions& options)
    : input_(file), options_(options), file_(File::open(file.path)), size_(file_.size()) {
  std::string mark(size_t(std::min<uint64_t>(size_, kByteOrderMark.size())), '\0');
  file_.read_at(mark.data(), mark.size(), 0);
  if (mark == kByteOrderMark) offset_ = mark.size();
}

void RecordReader::fail_here(std::string_view reason) const {
  fail(ErrorKind::data, "[data] {}:{}: {}", input_.path.string(), line_, reason);
}

// Long records double what is read, so that finding their end stays linear.
void RecordReader::fill() {
  buffer_.erase(0, used_);
  used_ = 0;
  const size_t have = buffer_.size();
  const size_t more = size_t(std::min<uint64_t>(size_ - offset_, std::max(options_.piece_bytes, have)));
  buffer_.resize(have + more);
  file_.read_at(buffer_.data() + have, more, offset_);
  offset_ += more;
}

void RecordReader::consume(size_t bytes) {
  line_ += uint32_t(std::ranges::count(unread().substr(0, bytes), '\n'));
  used_ += bytes;
}

void RecordReader::check_length() const {
  if (unread().size() > options_.record_bytes) {
    fail_here(fmt::format("got a record of more than {} bytes", options_.record_bytes));
  }
}

void RecordReader::next(std::vector<RawRecord>& out) {
  out.clear();
  while (out.empty() && !done_) {
    fill();
    switch (input_.kind) {
      case FileKind::json_lines:
        take_lines(out);
        break;
      case FileKind::json_array:
        take_elements(out);
        break;
      case FileKind::plain_text:
        take_text(out);
        break;
    }
    done_ = done_ || (at_end() && unread().empty());
  }
}

void RecordReader::take_lines(std::vector<RawRecord>& out) {
  while (!unread().empty()) {
    size_t end = unread().find('\n');
    if (end == kNone) {
      if (!at_end()) return check_length();
      end = unread().size();
    }
    const std::string_view line = unread().substr(0, end);
    const size_t from = line.find_first_not_of(kSpace);
    if (from != kNone) {
      out.push_back(
          {.text = std::string(line.substr(from, line.find_last_not_of(kSpace) + 1 - from)), .line = line_});
    }
    consume(std::min(end + 1, unread().size()));
  }
}

// Goes to the start of the next element; false: there is none in sight.
bool RecordReader::skip_to_element() {
  while (true) {
    consume(std::min(unread().find_first_not_of(kSpace), unread().size()));
    if (unread().empty()) {
      if (at_end() && array_ != ArrayState::ended) fail_here("the array does not end; is the file complete?");
      return false;
    }
    const char c = unread()[0];
    if (array_ == ArrayState::ended) fail_here("got text after the end of the array");
    const bool closes = c == ']' && array_ != ArrayState::before;
    if (array_ == ArrayState::element && !closes) return true;
    const bool opens = array_ == ArrayState::before && c == '[';
    const bool separates = array_ == ArrayState::after_element && c == ',';
    if (!opens && !separates && !closes) fail_here("expected ',' between elements of the array");
    array_ = closes ? ArrayState::ended : ArrayState::element;
    consume(1);
  }
}

void RecordReader::take_elements(std::vector<RawRecord>& out) {
  while (skip_to_element()) {
    const size_t end = value_end(unread());
    if (end == kNone) {
      if (at_end()) fail_here("the array does not end; is the file complete?");
      return check_length();
    }
    out.push_back({.text = std::string(unread().substr(0, end)), .line = line_});
    consume(end);
    array_ = ArrayState::after_element;
  }
}

void RecordReader::take_text(std::vector<RawRecord>& out) {
  while (!unread().empty()) {
    const bool last = at_end() && unread().size() <= options_.text_bytes;
    if (!last && unread().size() <= options_.text_bytes) return;
    const size_t end = last ? unread().size() : cut_of(unread(), options_.text_bytes);
    const std::string_view text = unread().substr(0, end);
    const size_t zero = text.find('\0');
    require(zero == kNone, ErrorKind::data,
            "[data] {}: got a zero byte at {}, expected plain text, JSON or a token file; binary formats are "
            "not read",
            input_.path.string(), offset_ - unread().size() + zero);
    out.push_back({.text = std::string(text), .line = 0, .first = first_, .last = last});
    first_ = false;
    used_ += end;
  }
}

}  // namespace zeno::data
