#include "zeno/data/dataset/json_reader.h"

#include <algorithm>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/data/dataset/record.h"

namespace zeno::data {
namespace {

constexpr size_t kNotInSight = std::string_view::npos;
// A file whose first line is no whole value is looked at this far to see whether the value spans lines.
constexpr size_t kFirstValueBytes = size_t(64) << 20;

// Where the JSON value at the start of `text` ends; kNotInSight: not in sight. Brackets and quotes decide, so
// a broken value ends somewhere too, and is reported when it is parsed.
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
  return kNotInSight;
}

bool is_json(std::string_view text) {
  try {
    parse_json(text);
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool is_message(std::string_view text) {
  try {
    return looks_like_message(parse_json(text));
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

void JsonReader::next(std::vector<RawRecord>& out) {
  out.clear();
  while (out.empty() && !done_) {
    text_.fill();
    if (layout_ == Layout::unknown) {
      text_.skip_space();
      layout_ = find_layout();
    }
    if (layout_ == Layout::lines) take_lines(out);
    if (layout_ == Layout::values) take_values(out);
    done_ = text_.done();
  }
}

// Lines are preferred, since a broken one leaves the others readable. Unknown: more text is needed.
JsonReader::Layout JsonReader::find_layout() const {
  const std::string_view text = text_.unread();
  if (text.empty()) return Layout::unknown;
  const size_t line_end = text.find('\n');
  if (line_end == kNotInSight && !text_.at_end()) {
    if (!text_.too_long(text.size())) return Layout::unknown;
    return text[0] == '[' ? Layout::values : Layout::lines;  // no record is as long, an array may be
  }
  if (text[0] != '{' && text[0] != '[') return Layout::lines;
  const std::string_view line = text.substr(0, line_end);
  const size_t end = value_end(line);
  const bool whole = end != kNotInSight && line.find_first_not_of(kSpace, end) == kNotInSight;
  if (text[0] == '[') {
    if (!whole) return Layout::values;
    // An array alone holds records; one of several is a record.
    const bool more = text.find_first_not_of(kSpace, line.size()) != kNotInSight;
    if (!more && !text_.at_end()) return Layout::unknown;
    return more ? Layout::lines : Layout::values;
  }
  if (whole) return Layout::lines;
  const size_t first = value_end(text);
  if (first != kNotInSight) return is_json(text.substr(0, first)) ? Layout::values : Layout::lines;
  return text_.at_end() || text.size() > kFirstValueBytes ? Layout::lines : Layout::unknown;
}

// A line that is too long costs no more memory than the others: what follows of it is dropped as it comes.
void JsonReader::take_lines(std::vector<RawRecord>& out) {
  while (!text_.unread().empty()) {
    size_t end = text_.unread().find('\n');
    const bool whole = end != kNotInSight || text_.at_end();
    end = std::min(end, text_.unread().size());
    const bool begins = !std::exchange(in_long_line_, false);
    if (!begins || text_.too_long(end)) {
      if (begins) out.push_back({.text = {}, .line = text_.line(), .error = text_.length_problem()});
      in_long_line_ = !whole;
    } else if (whole) {
      take_line(text_.unread().substr(0, end), out);
    } else {
      return;
    }
    text_.consume(std::min(end + 1, text_.unread().size()));
  }
}

void JsonReader::take_line(std::string_view line, std::vector<RawRecord>& out) const {
  const size_t from = line.find_first_not_of(kSpace);
  if (from == kNotInSight) return;
  const size_t to = line.find_last_not_of(kSpace) + 1;
  out.push_back({.text = std::string(line.substr(from, to - from)), .line = text_.line(), .error = {}});
}

void JsonReader::take_values(std::vector<RawRecord>& out) {
  while (true) {
    text_.skip_space();
    if (text_.unread().empty()) {
      if (text_.at_end() && place_ != Place::outside) {
        text_.fail_here("the array does not end; is the file complete?");
      }
      return;
    }
    const char c = text_.unread()[0];
    if (place_ == Place::outside) {
      if (c != '[' && c != '{') text_.fail_here("got text after the end of the JSON, expected '{' or '['");
      if (!(c == '[' ? enter_array(out) : take_value(out))) return;
    } else if (c == ']') {
      place_ = Place::outside;
      text_.consume(1);
    } else if (place_ == Place::after_element) {
      if (c != ',') text_.fail_here("expected ',' between elements of the array");
      place_ = Place::element;
      text_.consume(1);
    } else {
      if (!take_value(out)) return;
      place_ = Place::after_element;
    }
  }
}

// An array of messages is one record; any other holds records. False: more text is needed.
bool JsonReader::enter_array(std::vector<RawRecord>& out) {
  const std::string_view text = text_.unread();
  const size_t from = text.find_first_not_of(kSpace, 1);
  const bool object = from != kNotInSight && text[from] == '{';
  const size_t end = object ? value_end(text.substr(from)) : 0;
  if (from == kNotInSight || end == kNotInSight) {
    if (text_.at_end()) text_.fail_here("the array does not end; is the file complete?");
    text_.check_length();
    return false;
  }
  if (object && is_message(text.substr(from, end))) return take_value(out);
  place_ = Place::element;
  text_.consume(1);
  return true;
}

// False: the value is not whole yet.
bool JsonReader::take_value(std::vector<RawRecord>& out) {
  const size_t end = value_end(text_.unread());
  if (end == kNotInSight) {
    if (text_.at_end()) {
      text_.fail_here(place_ == Place::outside
                          ? "the JSON value that starts here does not end; is the file complete?"
                          : "the array does not end; is the file complete?");
    }
    text_.check_length();
    return false;
  }
  text_.check_length(end);
  out.push_back({.text = std::string(text_.unread().substr(0, end)), .line = text_.line(), .error = {}});
  text_.consume(end);
  return true;
}

}  // namespace zeno::data
