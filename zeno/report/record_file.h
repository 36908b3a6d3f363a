// A file to which whole records are appended during a run: metrics, events. Records that the disk refuses are
// buffered, up to 4 MiB, and written first as soon as it takes them; a record that was cut is written again
// from its beginning. A record that was taken is with the system before append() returns.
//
// Owns its file; for one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "zeno/base/file.h"

namespace zeno::report {

class RecordFile {
 public:
  static constexpr size_t kMostWaiting = size_t(4) << 20;  // bytes that are kept; later records are lost

  // Empties what is there.
  static RecordFile create(const Path& path) { return RecordFile(File::create(path), 0); }
  // Goes on behind the last line that is to be `kept`, and cuts off what follows it; creates a file that is
  // not there. Reads from the end, and no more than it has to.
  static RecordFile resume(const Path& path, const std::function<bool(std::string_view line)>& kept);

  const Path& path() const { return file_.path(); }
  bool empty() const { return size_ == 0; }
  // Error(io): the record is not in the file yet.
  void append(std::string_view record);
  // The same for what a file begins with, at the start of a run that must not end here: where the disk
  // refuses it, it waits.
  void begin(std::string_view record);
  // Once more what is waiting.
  void flush();
  // Records that are waiting, and those that were lost since this was last asked.
  int64_t waiting() const { return waiting_records_; }
  int64_t take_lost();

 private:
  RecordFile(File file, uint64_t size) : file_(std::move(file)), size_(size) {}

  File file_;
  uint64_t size_;        // of whole records in the file
  std::string waiting_;  // for the disk
  int64_t waiting_records_ = 0, lost_ = 0;
};

}  // namespace zeno::report
