// The text of a data file that has been read and not used yet, and the line it is on. Readers take records
// from its front.
//
// Owns the open file and the buffer; for one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "zeno/data/dataset/byte_source.h"
#include "zeno/data/dataset/record_reader.h"

namespace zeno::data {

// White space of JSON and around it.
constexpr std::string_view kSpace = " \t\r\n";

class TextBuffer {
 public:
  TextBuffer(const Path& path, const ReaderOptions& options);

  // Reads on. Long records double what is read, so that finding their end stays linear.
  void fill();
  bool at_end() const { return ended_; }  // nothing follows what is unread
  bool done() const { return ended_ && used_ == buffer_.size(); }
  std::string_view unread() const { return std::string_view(buffer_).substr(used_); }
  uint32_t line() const { return line_; }
  uint64_t bytes_read() const { return bytes_->position(); }
  const Path& path() const { return path_; }

  void consume(size_t bytes);
  void skip_space();
  // Is a record of this many bytes too long?
  bool too_long(size_t bytes) const { return bytes > options_.record_bytes; }
  std::string length_problem() const;
  // Error(data) if so. Without: for one that is longer than what is unread.
  void check_length(size_t bytes) const;
  void check_length() const { check_length(unread().size()); }
  [[noreturn]] void fail_here(std::string_view reason) const { fail_at(line_, reason); }
  [[noreturn]] void fail_at(uint32_t line, std::string_view reason) const;

 private:
  Path path_;
  ReaderOptions options_;
  std::unique_ptr<ByteSource> bytes_;
  std::string buffer_;
  size_t used_ = 0;  // bytes of the buffer that are done with
  uint32_t line_ = 1;
  bool started_ = false, ended_ = false;
};

}  // namespace zeno::data
