#include "zeno/data/dataset/byte_budget.h"

namespace zeno::data {

ByteBudget::Share::Share(ByteBudget& budget, size_t bytes) : budget_(budget), bytes_(bytes) {
  std::unique_lock lock(budget.mutex_);
  const uint64_t call = budget.calls_++;
  budget.changed_.wait(lock, [&] {
    const bool enough = budget.taken_ == 0 || budget.taken_ + bytes <= budget.bytes_;
    return call == budget.served_ && enough;
  });
  ++budget.served_;
  budget.taken_ += bytes;
  budget.changed_.notify_all();
}

ByteBudget::Share::~Share() {
  const std::lock_guard lock(budget_.mutex_);
  budget_.taken_ -= bytes_;
  budget_.changed_.notify_all();
}

}  // namespace zeno::data
