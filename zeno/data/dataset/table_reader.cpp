#include "zeno/data/dataset/table_reader.h"

#include <algorithm>
#include <optional>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"
#include "zeno/data/dataset/record.h"

namespace zeno::data {
namespace {

constexpr size_t kNotInText = std::string_view::npos;

// A field at the start of `text`. `end` is where it ends: at a separator, a line's end or the end of the
// text, which may not be in sight yet (kNotInText).
struct Field {
  std::string text;
  size_t end = kNotInText;
  bool open = false;  // a quote that was not closed
};

Field quoted_field(std::string_view text) {
  Field field;
  for (size_t from = 1;;) {
    const size_t quote = text.find('"', from);
    if (quote == kNotInText) return {.text = {}, .end = kNotInText, .open = true};
    field.text += text.substr(from, quote - from);
    if (quote + 1 < text.size() && text[quote + 1] == '"') {
      field.text += '"';
      from = quote + 2;
    } else {
      field.end = quote + 1;
      return field;
    }
  }
}

Field field_of(std::string_view text, char separator) {
  if (text.starts_with('"')) return quoted_field(text);
  const char ends[] = {separator, '\n', '\r'};
  Field field;
  field.end = std::min(text.find_first_of(std::string_view(ends, sizeof(ends))), text.size());
  field.text = text.substr(0, field.end);
  return field;
}

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return shortened(out, 100);
}

}  // namespace

void TableReader::next(std::vector<RawRecord>& out) {
  out.clear();
  std::vector<std::string> fields;
  while (out.empty() && !done_) {
    text_.fill();
    for (uint32_t line = text_.line(); take_row(fields); line = text_.line()) {
      const bool blank = fields.size() == 1 && fields[0].empty();
      if (blank) continue;
      if (columns_.empty()) {
        read_header(fields, line);
      } else {
        out.push_back(record_of(fields, line));
      }
    }
    done_ = text_.done();
  }
}

// The next row; false: none is whole yet.
bool TableReader::take_row(std::vector<std::string>& fields) {
  fields.clear();
  const std::string_view text = text_.unread();
  if (text.empty()) return false;
  // Spreadsheets of countries with a decimal comma write semicolons.
  const size_t line_end = text.find('\n');
  if (columns_.empty() && separator_ == ',' && (line_end != kNotInText || text_.at_end())) {
    const std::string_view line = text.substr(0, line_end);
    if (line.find(',') == kNotInText && line.find(';') != kNotInText) separator_ = ';';
  }
  for (size_t at = 0;;) {
    Field field = field_of(text.substr(at), separator_);
    const size_t end = field.end == kNotInText ? kNotInText : at + field.end;
    const bool broken_off =
        end == kNotInText || end >= text.size() || (text[end] == '\r' && end + 1 == text.size());
    if (broken_off && !text_.at_end()) {
      text_.check_length();
      return false;
    }
    if (field.open) text_.fail_here("a quoted field of this row does not end; is the file complete?");
    fields.push_back(std::move(field.text));
    if (end >= text.size()) {
      text_.consume(text.size());
      return true;
    }
    if (text[end] == '\n' || text[end] == '\r') {
      text_.consume(end + (text.substr(end).starts_with("\r\n") ? 2 : 1));
      return true;
    }
    if (text[end] != separator_) {
      text_.fail_here(
          fmt::format("field {} has text after its closing quote, expected '{}' or the end of the line; "
                      "double the quotes inside a quoted field",
                      fields.size(), separator_ == '\t' ? std::string("\\t") : std::string(1, separator_)));
    }
    at = end + 1;
  }
}

void TableReader::read_header(const std::vector<std::string>& fields, uint32_t line) {
  for (const std::string& field : fields) {
    // pandas writes its row numbers under no name.
    std::string name = field.empty() ? fmt::format("column {}", columns_.size() + 1) : field;
    if (!is_valid_utf8(name)) text_.fail_at(line, "the header is not UTF-8; convert the file to UTF-8");
    if (std::ranges::find(columns_, name) != columns_.end()) {
      text_.fail_at(line, fmt::format("the header names column '{}' twice", shortened(name, 60)));
    }
    columns_.push_back(std::move(name));
  }
}

RawRecord TableReader::record_of(std::vector<std::string>& fields, uint32_t line) const {
  RawRecord record{.text = {}, .line = line, .error = {}};
  if (fields.size() != columns_.size()) {
    record.error = fmt::format("got {} fields, expected {} as in the header ({})", fields.size(),
                               columns_.size(), listed(columns_));
    return record;
  }
  Json row = Json::object();
  for (size_t i = 0; i < fields.size(); ++i) {
    if (!is_valid_utf8(fields[i])) {
      record.error =
          fmt::format("column '{}' is not UTF-8; convert the file to UTF-8", shortened(columns_[i], 60));
      return record;
    }
    row[columns_[i]] = std::move(fields[i]);
  }
  record.text = row.dump();
  return record;
}

}  // namespace zeno::data
