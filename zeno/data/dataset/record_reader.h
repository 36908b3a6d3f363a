// Reads a data file in pieces: lines, elements of a JSON array, or stretches of plain text. Memory is one
// piece or the longest record, whichever is more. Owns the open file and a buffer; for one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/data/dataset/input_files.h"

namespace zeno::data {

struct RawRecord {
  std::string text;
  uint32_t line = 0;               // counted from 1; 0: plain text
  bool first = true, last = true;  // plain text: is it the first, the last piece of its file?
};

struct ReaderOptions {
  size_t piece_bytes = size_t(4) << 20;   // read at once
  size_t record_bytes = size_t(1) << 30;  // a longer record is an Error(data)
  size_t text_bytes = size_t(1) << 20;    // plain text is cut after so much, where a line ends
};

class RecordReader {
 public:
  explicit RecordReader(const InputFile& file, const ReaderOptions& options = {});

  // Replaces `out` by the next records; none: the file has ended. Empty lines are no records. What is wrong
  // with the file as a whole (zero bytes in text, a broken array) is an Error(data) with file and line.
  void next(std::vector<RawRecord>& out);
  uint64_t bytes_read() const { return offset_; }

 private:
  enum class ArrayState { before, element, after_element, ended };

  void fill();
  bool at_end() const { return offset_ == size_; }
  std::string_view unread() const { return std::string_view(buffer_).substr(used_); }
  void consume(size_t bytes);
  void take_lines(std::vector<RawRecord>& out);
  void take_elements(std::vector<RawRecord>& out);
  void take_text(std::vector<RawRecord>& out);
  bool skip_to_element();
  void check_length() const;
  [[noreturn]] void fail_here(std::string_view reason) const;

  InputFile input_;
  ReaderOptions options_;
  File file_;
  uint64_t size_ = 0, offset_ = 0;  // of the file; bytes read so far
  std::string buffer_;
  size_t used_ = 0;  // bytes of the buffer that are done with
  uint32_t line_ = 1;
  bool first_ = true, done_ = false;
  ArrayState array_ = ArrayState::before;
};

}  // namespace zeno::data
