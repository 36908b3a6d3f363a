#include "zeno/report/record_file.h"

#include <algorithm>
#include <utility>

#include "zeno/base/error.h"

namespace zeno::report {
namespace {

constexpr uint64_t kBlock = 64 << 10;
constexpr uint64_t kLongestLine = 1 << 20;  // what is longer is no line of ours

// Where the last line ends that is to be kept.
uint64_t end_of_kept(const File& file, const std::function<bool(std::string_view)>& kept) {
  std::string text;  // from `begin` on, up to the end of the last line not looked at yet
  for (uint64_t begin = file.size(); begin > 0;) {
    const uint64_t block = std::min(begin, kBlock);
    std::string before(block, '\0');
    file.read_at(before.data(), block, begin - block);
    begin -= block;
    text.insert(0, before);
    // A line begins behind a line break, or where the file does; one without an end was cut.
    while (true) {
      const size_t end = text.rfind('\n');
      if (end == std::string::npos) break;
      const size_t break_before = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
      if (break_before == std::string::npos && begin > 0) break;
      const size_t line = break_before == std::string::npos ? 0 : break_before + 1;
      if (kept(std::string_view(text).substr(line, end - line))) return begin + end + 1;
      text.resize(line);
    }
    if (text.size() > kLongestLine) text.clear();
  }
  return 0;
}

}  // namespace

RecordFile RecordFile::resume(const Path& path, const std::function<bool(std::string_view line)>& kept) {
  if (!file_exists(path)) return create(path);
  File file = File::open_to_write(path);
  const uint64_t size = end_of_kept(file, kept);
  file.resize(size);
  return RecordFile(std::move(file), size);
}

void RecordFile::append(std::string_view record) {
  if (waiting_.size() + record.size() > kMostWaiting && waiting_records_ > 0) {
    ++lost_;  // unless the disk takes now what is waiting
    flush();
    --lost_;
  }
  waiting_ += record;
  ++waiting_records_;
  flush();
}

void RecordFile::begin(std::string_view record) {
  try {
    append(record);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::io) throw;
  }
}

void RecordFile::flush() {
  if (waiting_.empty()) return;
  try {
    file_.write_at(waiting_.data(), waiting_.size(), size_);
  } catch (const Error&) {
    // Readers see whole records only, if the disk lets us.
    try {
      if (file_.size() > size_) file_.resize(size_);
    } catch (const Error&) {
    }
    throw;
  }
  size_ += waiting_.size();
  waiting_.clear();
  waiting_records_ = 0;
}

int64_t RecordFile::take_lost() { return std::exchange(lost_, 0); }

}  // namespace zeno::report
