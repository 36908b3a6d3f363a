// File systems for tests: one that fails on demand, and both count what they are asked for.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/base/math.h"

namespace zeno::test {

enum class FileCall { open, pwrite, fsync, rename };

// Notes the calls on paths that contain `where`, and lets the one numbered `at` fail.
class FaultyFiles final : public FileSystem {
 public:
  struct Fault {
    FileCall call = FileCall::pwrite;
    int64_t at = -1;       // -1: never
    int error = 0;         // 0: the write is cut short
    bool forever = false;  // and all calls of this kind from then on
    bool nothing = false;  // the write returns 0
  };
  struct Entry {
    FileCall call;
    std::string path, to;
  };

  explicit FaultyFiles(std::string where) : where_(std::move(where)) {}
  FaultyFiles(std::string where, Fault fault) : where_(std::move(where)), fault_(fault) {}

  bool fired() const { return fired_; }
  const std::vector<Entry>& calls() const { return calls_; }
  int64_t count(FileCall call) const { return counts_.contains(call) ? counts_.at(call) : 0; }

  int open(const char* path, int flags, mode_t mode) override {
    if (hit(FileCall::open, path)) return fail();
    const int fd = FileSystem::open(path, flags, mode);
    const std::scoped_lock lock(mutex_);
    if (fd >= 0) paths_[fd] = path;
    return fd;
  }
  ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) override {
    if (!hit(FileCall::pwrite, path_of(fd))) return FileSystem::pwrite(fd, data, bytes, offset);
    if (fault_.nothing) return 0;
    if (fault_.error != 0) return fail();
    size_t part = (bytes + 1) / 2;
    // Past the page cache, the system writes whole blocks.
    if (fcntl(fd, F_GETFL) & O_DIRECT) part = std::min(bytes, round_up(part, kDirectAlign));
    return FileSystem::pwrite(fd, data, part, offset);
  }
  int fsync(int fd) override { return hit(FileCall::fsync, path_of(fd)) ? fail() : FileSystem::fsync(fd); }
  int rename(const char* from, const char* to) override {
    return hit(FileCall::rename, from, to) ? fail() : FileSystem::rename(from, to);
  }

 private:
  int fail() const {
    errno = fault_.error;
    return -1;
  }
  std::string path_of(int fd) {
    const std::scoped_lock lock(mutex_);
    return paths_[fd];
  }
  bool hit(FileCall call, const std::string& path, const std::string& to = "") {
    const std::scoped_lock lock(mutex_);
    if (path.find(where_) == std::string::npos) return false;
    calls_.push_back({call, path, to});
    const int64_t number = counts_[call]++;
    if (call != fault_.call || fault_.at < 0) return false;
    const bool now = fault_.forever ? number >= fault_.at : number == fault_.at;
    fired_ |= now;
    return now;
  }

  std::string where_;
  Fault fault_;
  std::mutex mutex_;
  std::map<int, std::string> paths_;
  std::map<FileCall, int64_t> counts_;
  std::vector<Entry> calls_;
  bool fired_ = false;
};

}  // namespace zeno::test
