// Reads a data file record by record, a piece of the file at a time: JSON values, rows of a table, pieces of
// plain text. Memory is one piece or the longest record, whichever is more. For one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "zeno/data/dataset/input_files.h"

namespace zeno::data {

struct RawRecord {
  std::string text;                // JSON, whatever the file is written in; plain text as it is
  uint32_t line = 0;               // or row, counted from 1; 0: plain text
  bool first = true, last = true;  // plain text: is it the first, the last piece of its file?
  std::string error;               // not empty: the record cannot be read, for this reason
};

struct ReaderOptions {
  size_t piece_bytes = size_t(4) << 20;    // read at once
  size_t record_bytes = size_t(64) << 20;  // a longer record is an Error(data)
  size_t text_bytes = size_t(1) << 20;     // plain text is cut after this many bytes, where a line ends
};

class RecordReader {
 public:
  virtual ~RecordReader() = default;
  // Replaces `out` by the next records; none: the file has ended. What is wrong with the file as a whole
  // (zero bytes in text, an array that does not end) is an Error(data) with file and line.
  virtual void next(std::vector<RawRecord>& out) = 0;
  // Bytes of the file that have been used, for progress.
  virtual uint64_t bytes_read() const = 0;
};

std::unique_ptr<RecordReader> open_records(const InputFile& file, const ReaderOptions& options = {});

}  // namespace zeno::data
