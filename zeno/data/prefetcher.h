// Prepares the next step's micro-batches on a separate thread while the current step computes. Holds at most
// one prepared step. get() is for one thread; what the batches come from must outlive the prefetcher.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "zeno/data/loader.h"

namespace zeno::data {

class Prefetcher {
 public:
  using Source = std::function<std::vector<HostBatch>(int64_t step)>;  // called on the thread
  Prefetcher(const Loader& loader, int64_t first_step);
  Prefetcher(Source source, int64_t first_step);
  ~Prefetcher();  // stops the thread after the step it is working on
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Waits for the next step: first_step, then one further each time. An exception of the loader is rethrown
  // here, and again by every later call.
  std::vector<HostBatch> get();

 private:
  void run(int rank);

  Source source_;
  int64_t next_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::vector<HostBatch>> ready_;
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;  // last: starts when everything else exists
};

}  // namespace zeno::data
