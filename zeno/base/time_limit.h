// A limit for work that may hang and cannot be taken back, such as the start of MPI.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace zeno {

class TimeLimit {
 public:
  // Calls `over` on a thread of its own, unless this is destroyed before `longest` has passed.
  TimeLimit(std::chrono::milliseconds longest, std::function<void()> over);
  ~TimeLimit();
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable change_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace zeno
