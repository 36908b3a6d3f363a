// File operations under way, so that a disk that stops answering can be named: a system call on such a disk
// does not return and cannot be cancelled.
//
// A DiskOperation represents one such call, from construction to destruction. Threads: any; the questions may
// be asked from any other thread.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

namespace zeno {

class DiskOperation {
 public:
  // `what` as in "writing FILE". Both must outlive this.
  DiskOperation(const char* what, const std::filesystem::path& path);
  ~DiskOperation();
  DiskOperation(const DiskOperation&) = delete;
  DiskOperation& operator=(const DiskOperation&) = delete;

  const char* what() const { return what_; }
  const std::filesystem::path& path() const { return path_; }
  int rank() const { return rank_; }  // whose thread it is (log.h)
  std::chrono::steady_clock::time_point begin() const { return begin_; }
  const DiskOperation* next() const { return after_; }

 private:
  const char* what_;
  const std::filesystem::path& path_;
  int rank_;
  std::chrono::steady_clock::time_point begin_;
  DiskOperation *before_, *after_;  // in the list of all
};

// One that has had no answer for long.
struct DiskStall {
  int rank = -1;
  std::string operation;  // "writing FILE"
  std::chrono::milliseconds waited{};

  // For an Error(io).
  std::string text() const;
};

// The oldest operation under way that has lasted for `longest` or more; of this rank, where one is given.
std::optional<DiskStall> find_disk_stall(std::chrono::milliseconds longest,
                                         std::optional<int> rank = std::nullopt);

}  // namespace zeno
