#include "zeno/data/dataset/record_reader.h"

#include "zeno/data/dataset/json_reader.h"
#include "zeno/data/dataset/parquet_rows.h"
#include "zeno/data/dataset/plain_text_reader.h"
#include "zeno/data/dataset/table_reader.h"

namespace zeno::data {

std::unique_ptr<RecordReader> open_records(const InputFile& file, const ReaderOptions& options) {
  switch (file.kind) {
    case FileKind::json:
      return std::make_unique<JsonReader>(file.path, options);
    case FileKind::csv:
    case FileKind::tsv:
      return std::make_unique<TableReader>(file.path, file.kind == FileKind::tsv, options);
    case FileKind::parquet:
      return std::make_unique<ParquetRows>(file.path, options);
    case FileKind::plain_text:
      break;
  }
  return std::make_unique<PlainTextReader>(file.path, options);
}

}  // namespace zeno::data
