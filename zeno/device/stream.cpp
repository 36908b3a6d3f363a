#include "zeno/device/stream.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/log.h"

namespace zeno {

// `recorded` counts the records issued, `reached` those whose work is done. A waiter remembers the count it
// saw, so re-recording an event never moves an earlier wait.
struct Event::State {
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  uint64_t recorded = 0;
  uint64_t reached = 0;
  std::exception_ptr error;

  void reach(uint64_t mark, std::exception_ptr failure) {
    {
      const std::scoped_lock lock(mutex);
      reached = std::max(reached, mark);
      error = failure;
    }
    changed.notify_all();
  }
  std::exception_ptr await(uint64_t mark) const {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reached >= mark; });
    return error;
  }
  uint64_t last_mark() const {
    const std::scoped_lock lock(mutex);
    return recorded;
  }
};

class StreamImpl {
 public:
  explicit StreamImpl(StreamOptions options)
      : options_(std::move(options)),
        workers_(options_.threads, options_.scratch, options_.scratch_bytes),
        thread_([this] { loop(); }) {}

  ~StreamImpl() {
    {
      const std::scoped_lock lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  const StreamOptions& options() const { return options_; }

  // Runs `task(error)` in order; it may set `error`. Ordinary tasks skip themselves once error is set.
  void push(std::function<void(std::exception_ptr&)> task) {
    {
      const std::scoped_lock lock(mutex_);
      queue_.push_back(std::move(task));
    }
    wake_.notify_one();
  }

  void launch(CpuTask task) {
    push([this, task = std::move(task)](std::exception_ptr& error) {
      if (!error) task(workers_);
    });
  }

  void synchronize() {
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

 private:
  void loop() {
    set_log_rank(options_.rank);
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

  StreamOptions options_;
  Workers workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void(std::exception_ptr&)>> queue_;
  bool stop_ = false;
  std::thread thread_;
};

Device StreamRef::device() const { return impl_->options().device; }
const std::string& StreamRef::name() const { return impl_->options().name; }
void StreamRef::launch(CpuTask task) const { impl_->launch(std::move(task)); }
void StreamRef::synchronize() const { impl_->synchronize(); }

void StreamRef::wait(const Event& event) const {
  const uint64_t mark = event.state_->last_mark();
  if (mark == 0) return;
  impl_->push([state = event.state_, mark](std::exception_ptr& error) {
    std::exception_ptr failure = state->await(mark);
    if (!error) error = failure;
  });
}

Stream::Stream(StreamOptions options) {
  ensure(options.device.kind == Device::Kind::cpu, "[stream] {}: this build has CPU streams only",
         describe(options.device));
  impl_ = std::make_unique<StreamImpl>(std::move(options));
}
Stream::~Stream() = default;
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;

void Stream::reset_error() {
  impl_->push([](std::exception_ptr& error) { error = nullptr; });
}

Event::Event() : state_(std::make_shared<State>()) {}

void Event::record(StreamRef stream) {
  uint64_t mark;
  {
    const std::scoped_lock lock(state_->mutex);
    mark = ++state_->recorded;
  }
  stream.impl_->push([state = state_, mark](std::exception_ptr& error) { state->reach(mark, error); });
}

bool Event::done() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->reached >= state_->recorded;
}

void Event::synchronize() const {
  if (std::exception_ptr failure = state_->await(state_->last_mark())) std::rethrow_exception(failure);
}

}  // namespace zeno
