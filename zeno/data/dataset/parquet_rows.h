// Rows of a Parquet file as JSON records. For one thread.
#pragma once

#include <string>
#include <vector>

#include "zeno/data/dataset/record_reader.h"
#include "zeno/data/parquet/row_reader.h"

namespace zeno::data {

class ParquetRows : public RecordReader {
 public:
  ParquetRows(const Path& path, const ReaderOptions& options);

  void next(std::vector<RawRecord>& out) override;
  // In proportion to the rows: the bytes of columns are spread over the file.
  uint64_t bytes_read() const override;

 private:
  parquet::RowReader rows_;
  uint64_t file_bytes_;
  size_t piece_bytes_;
  std::string text_;  // the last row
};

}  // namespace zeno::data
