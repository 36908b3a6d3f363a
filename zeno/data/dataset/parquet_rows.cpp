#include "zeno/data/dataset/parquet_rows.h"

namespace zeno::data {

ParquetRows::ParquetRows(const Path& path, const ReaderOptions& options)
    : rows_(path, {.row_bytes = options.record_bytes}),
      file_bytes_(File::open(path).size()),
      piece_bytes_(options.piece_bytes) {}

void ParquetRows::next(std::vector<RawRecord>& out) {
  out.clear();
  parquet::Json row;
  for (size_t bytes = 0; bytes < piece_bytes_ && rows_.next(row);) {
    out.push_back({.text = row.dump(), .line = uint32_t(rows_.rows_read()), .error = {}});
    bytes += sizeof(RawRecord) + out.back().text.size();
  }
}

uint64_t ParquetRows::bytes_read() const {
  if (rows_.rows() == 0) return file_bytes_;
  return uint64_t(double(file_bytes_) * double(rows_.rows_read()) / double(rows_.rows()));
}

}  // namespace zeno::data
