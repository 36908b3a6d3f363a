// Reads a Parquet file row by row as JSON objects: columns in the file's order, absent values as null, lists
// as arrays, structs as objects, maps as objects too. In memory are the footer, one page and one dictionary
// of each column, and one row. Owns the open file; one thread.
//
// Compressed with snappy, gzip or zstd, or not at all; other codecs and encrypted files are refused by name.
// Whatever is wrong with the file is an Error(data) with its path and, where known, row group and column.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "zeno/base/file.h"
#include "zeno/data/parquet/column_reader.h"

namespace zeno::data::parquet {

struct Limits {
  uint64_t page_bytes = uint64_t(4) << 30;  // all pages in memory together
  uint64_t row_bytes = uint64_t(1) << 30;   // one row as JSON, roughly
};

class RowReader {
 public:
  explicit RowReader(const Path& path, const Limits& limits = {});
  // Columns refer to the file and the metadata.
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;

  // False: there are no more rows.
  bool next(Json& row);
  uint64_t rows_read() const { return rows_read_; }
  uint64_t rows() const { return uint64_t(metadata_.rows); }

 private:
  void read_footer();
  void open_group(const RowGroup& group);
  void close_group();
  Json read(const Field& field, int repetition);
  Json read_object(const Field& field, int repetition);
  Json read_list(const Field& field, int repetition);
  Json read_map(const Field& field, int repetition);
  template <class F>
  void for_elements(const Field& field, int repetition, F&& element);
  void skip(const Field& field, int repetition, int below);
  void count(uint64_t bytes);

  Limits limits_;
  File file_;
  uint64_t footer_at_ = 0;
  FileMetadata metadata_;
  Schema schema_;
  PageDecompressor shared_;
  std::string place_;  // for messages
  size_t groups_opened_ = 0;
  int64_t left_in_group_ = 0;         // rows
  std::deque<ColumnReader> columns_;  // of this row group
  uint64_t rows_read_ = 0, row_bytes_ = 0;
};

}  // namespace zeno::data::parquet
