// What the records that are worked on at one time may have in bytes, all threads together: memory does not
// grow with the number of cores. Safe from any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace zeno::data {

class ByteBudget {
 public:
  explicit ByteBudget(size_t bytes) : bytes_(bytes) {}

  // Some of the bytes while it lives. Waits until there are enough, in the order of the calls; for more than
  // there are in all, until nobody else has any.
  class Share {
   public:
    Share(ByteBudget& budget, size_t bytes);
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

   private:
    ByteBudget& budget_;
    size_t bytes_;
  };

 private:
  const size_t bytes_;
  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  size_t taken_ = 0;
  uint64_t calls_ = 0, served_ = 0;
};

}  // namespace zeno::data
