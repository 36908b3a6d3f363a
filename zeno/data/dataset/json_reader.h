// JSON records of a file: one per line, elements of an array, or values that span lines one after the other.
// Which of these a file is shows at its beginning, whatever its name. For one thread.
#pragma once

#include <optional>
#include <vector>

#include "zeno/data/dataset/text_buffer.h"

namespace zeno::data {

class JsonReader : public RecordReader {
 public:
  JsonReader(const Path& path, const ReaderOptions& options) : text_(path, options) {}

  void next(std::vector<RawRecord>& out) override;
  uint64_t bytes_read() const override { return text_.bytes_read(); }

 private:
  enum class Layout { unknown, lines, values };
  // Of values: outside of any array, before an element, behind one.
  enum class Place { outside, element, after_element };

  Layout find_layout() const;
  void take_lines(std::vector<RawRecord>& out);
  void take_line(std::string_view line, std::vector<RawRecord>& out) const;
  void take_values(std::vector<RawRecord>& out);
  bool enter_array(std::vector<RawRecord>& out);
  bool take_value(std::vector<RawRecord>& out);

  TextBuffer text_;
  Layout layout_ = Layout::unknown;
  Place place_ = Place::outside;
  bool in_long_line_ = false;  // the unread text continues a line that was too long
  bool done_ = false;
};

}  // namespace zeno::data
