// CPU streams: a worker thread each, so overlap, and every race it can hide, exists without a GPU.
#include <chrono>
#include <deque>
#include <functional>

#include "zeno/base/log.h"
#include "zeno/base/thread.h"
#include "zeno/device/cores.h"
#include "zeno/device/stream_impl.h"

namespace zeno {
namespace {

class CpuStream final : public StreamImpl {
 public:
  explicit CpuStream(StreamOptions given)
      : StreamImpl(std::move(given)),
        workers_(options().threads, options().scratch, options().scratch_bytes,
                 [near = options().near] { stay_near(near); }),
        thread_(start_thread([this] { loop(); })) {}

  ~CpuStream() override {
    {
      const std::scoped_lock lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  void launch(CpuTask task) override {
    push([this, task = std::move(task)](std::exception_ptr& error) {
      if (!error) task(workers_);
    });
  }

  void record(const std::shared_ptr<Event::State>& event) override {
    {
      const std::scoped_lock lock(mutex_);  // records are counted in the order of the queue
      const uint64_t record = ++records_;
      const uint64_t count = note(*event, record);
      queue_.push_back([this, event, count, record](std::exception_ptr& error) {
        progress_->reach(record, error);
        event->reach(count, error);
      });
    }
    wake_.notify_one();
  }

  void wait(const std::shared_ptr<Event::State>& event) override {
    if (const auto mark = event->device_mark()) {
      push([passed = mark->probe()](std::exception_ptr&) {
        while (!passed()) std::this_thread::sleep_for(std::chrono::microseconds(20));
      });
      return;
    }
    const uint64_t count = event->last_count();
    if (count == 0) return;
    push([event, count](std::exception_ptr& error) {
      std::exception_ptr failure = event->await(count);
      if (!error) error = failure;
    });
  }

  void synchronize() override {
    std::exception_ptr failure;
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    push([&](std::exception_ptr& error) {
      const std::scoped_lock lock(mutex);
      failure = error;
      done = true;
      changed.notify_one();
    });
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
    if (failure) std::rethrow_exception(failure);
  }

  void reset_error() override {
    push([this](std::exception_ptr& error) {
      error = nullptr;
      progress_->forgive();
    });
  }

 private:
  // Makes `record` of this stream the event's last; returns the event's own count.
  uint64_t note(Event::State& event, uint64_t record) const {
    const std::scoped_lock lock(event.mutex);
    event.mark = nullptr;
    event.progress = progress_;
    event.record = record;
    return ++event.recorded;
  }

  // Runs `task(error)` in order; it may set `error`. Ordinary tasks skip themselves once error is set.
  void push(std::function<void(std::exception_ptr&)> task) {
    {
      const std::scoped_lock lock(mutex_);
      queue_.push_back(std::move(task));
    }
    wake_.notify_one();
  }

  void loop() {
    set_log_rank(options().rank);
    stay_near(options().near);
    std::exception_ptr error;
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      auto task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      try {
        task(error);
      } catch (...) {
        if (!error) error = std::current_exception();
      }
      task = nullptr;  // captured state dies here, not at the next task
      lock.lock();
    }
  }

  Workers workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void(std::exception_ptr&)>> queue_;
  uint64_t records_ = 0;
  bool stop_ = false;
  const std::shared_ptr<CpuProgress> progress_ = std::make_shared<CpuProgress>();
  std::thread thread_;
};

}  // namespace

std::unique_ptr<StreamImpl> make_cpu_stream(StreamOptions options) {
  return std::make_unique<CpuStream>(std::move(options));
}

}  // namespace zeno
