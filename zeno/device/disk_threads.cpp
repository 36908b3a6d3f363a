#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/base/thread.h"
#include "zeno/device/disk_queue.h"

namespace zeno {
namespace {

class ThreadQueue final : public DiskQueue {
 public:
  explicit ThreadQueue(int depth) {
    try {
      for (int t = 0; t < depth; ++t) threads_.push_back(start_thread([this] { work(); }));
    } catch (const Error&) {
      if (threads_.empty()) throw;  // fewer are slower, no more
    }
  }
  ~ThreadQueue() override {
    {
      const std::scoped_lock lock(mutex_);
      stop_ = true;
    }
    asked_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::string_view name() const override { return "threads"; }
  bool register_buffer(std::span<std::byte>) override { return false; }

  void submit(const DiskRequest& request) override {
    {
      const std::scoped_lock lock(mutex_);
      requests_.push_back(request);
    }
    asked_.notify_one();
  }

  size_t wait(std::span<DiskCompletion> done) override {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return !completions_.empty(); });
    const size_t count = std::min(done.size(), completions_.size());
    std::copy_n(completions_.begin(), count, done.begin());
    completions_.erase(completions_.begin(), completions_.begin() + ptrdiff_t(count));
    return count;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      asked_.wait(lock, [&] { return stop_ || !requests_.empty(); });
      if (requests_.empty()) return;
      const DiskRequest request = requests_.front();
      requests_.pop_front();
      lock.unlock();
      const ssize_t n =
          request.write ? file_system().pwrite(request.fd, request.data, request.bytes, off_t(request.offset))
                        : file_system().pread(request.fd, request.data, request.bytes, off_t(request.offset));
      const int64_t result = n < 0 ? -errno : n;
      lock.lock();
      completions_.push_back({request.tag, result});
      done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable asked_, done_;
  std::deque<DiskRequest> requests_;
  std::deque<DiskCompletion> completions_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<DiskQueue> make_thread_queue(int depth) { return std::make_unique<ThreadQueue>(depth); }

std::unique_ptr<DiskQueue> make_disk_queue(int depth) {
  auto queue = make_uring_queue(depth);
  return queue ? std::move(queue) : make_thread_queue(depth);
}

}  // namespace zeno
