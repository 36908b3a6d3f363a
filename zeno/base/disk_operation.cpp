#include "zeno/base/disk_operation.h"

#include <fmt/core.h>

#include <mutex>

#include "zeno/base/log.h"

namespace zeno {
namespace {

using Clock = std::chrono::steady_clock;

// Never destroyed: a thread that is left behind in an operation may come out of it at any time.
struct List {
  std::mutex mutex;
  DiskOperation* first = nullptr;
};
List& list() {
  static List& all = *new List;
  return all;
}

}  // namespace

DiskOperation::DiskOperation(const char* what, const std::filesystem::path& path)
    : what_(what), path_(path), rank_(log_rank()), begin_(Clock::now()), before_(nullptr) {
  List& all = list();
  const std::scoped_lock lock(all.mutex);
  after_ = all.first;
  if (after_ != nullptr) after_->before_ = this;
  all.first = this;
}

DiskOperation::~DiskOperation() {
  List& all = list();
  const std::scoped_lock lock(all.mutex);
  (before_ != nullptr ? before_->after_ : all.first) = after_;
  if (after_ != nullptr) after_->before_ = before_;
}

std::string DiskStall::text() const {
  return fmt::format(
      "[disk] {}: no response for {:.1f} s; the disk or the server behind it does not respond; fix it, use "
      "another folder, or raise --disk-deadline of zeno train",
      operation, std::chrono::duration<double>(waited).count());
}

std::optional<DiskStall> find_disk_stall(std::chrono::milliseconds longest, std::optional<int> rank) {
  List& all = list();
  const Clock::time_point now = Clock::now();
  const std::scoped_lock lock(all.mutex);
  const DiskOperation* oldest = nullptr;
  for (const DiskOperation* each = all.first; each != nullptr; each = each->next()) {
    if (rank && each->rank() != *rank) continue;
    if (now - each->begin() < longest) continue;
    if (oldest == nullptr || each->begin() < oldest->begin()) oldest = each;
  }
  if (oldest == nullptr) return std::nullopt;
  return DiskStall{oldest->rank(), fmt::format("{} {}", oldest->what(), oldest->path().string()),
                   std::chrono::duration_cast<std::chrono::milliseconds>(now - oldest->begin())};
}

}  // namespace zeno
