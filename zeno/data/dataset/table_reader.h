// Rows of a CSV or TSV file as JSON records: the first row names the columns, every field is a text. Quotes
// as in RFC 4180: a quoted field may hold separators, line breaks and doubled quotes. For one thread.
#pragma once

#include <string>
#include <vector>

#include "zeno/data/dataset/text_buffer.h"

namespace zeno::data {

class TableReader : public RecordReader {
 public:
  TableReader(const Path& path, bool tabs, const ReaderOptions& options)
      : text_(path, options), separator_(tabs ? '\t' : ',') {}

  void next(std::vector<RawRecord>& out) override;
  uint64_t bytes_read() const override { return text_.bytes_read(); }

 private:
  bool take_row(std::vector<std::string>& fields);
  void read_header(const std::vector<std::string>& fields, uint32_t line);
  RawRecord record_of(std::vector<std::string>& fields, uint32_t line) const;

  TextBuffer text_;
  char separator_;
  std::vector<std::string> columns_;  // empty: the header has not been read
  bool done_ = false;
};

}  // namespace zeno::data
