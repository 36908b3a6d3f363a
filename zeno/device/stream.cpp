#include "zeno/device/stream.h"

#include <algorithm>

#include "zeno/device/stream_impl.h"

namespace zeno {

void CpuProgress::reach(uint64_t record, std::exception_ptr failure) {
  const std::scoped_lock lock(mutex);
  reached = record;
  error = std::move(failure);
  // A locked store: what the stream wrote before it, streaming stores included, is there for the device.
  if (counter != nullptr) counter->store(record, std::memory_order_seq_cst);
}

void CpuProgress::forgive() {
  const std::scoped_lock lock(mutex);
  error = nullptr;
}

void CpuProgress::rethrow() const {
  const std::scoped_lock lock(mutex);
  if (error) std::rethrow_exception(error);
}

void Event::State::reach(uint64_t count, std::exception_ptr failure) {
  {
    const std::scoped_lock lock(mutex);
    reached = std::max(reached, count);
    error = failure;
  }
  changed.notify_all();
}

std::exception_ptr Event::State::await(uint64_t count) const {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return reached >= count; });
  return error;
}

uint64_t Event::State::last_count() const {
  const std::scoped_lock lock(mutex);
  return recorded;
}

std::shared_ptr<DeviceMark> Event::State::device_mark() const {
  const std::scoped_lock lock(mutex);
  return mark;
}

Device StreamRef::device() const { return impl_->options().device; }
const std::string& StreamRef::name() const { return impl_->options().name; }
void StreamRef::launch(CpuTask task) const { impl_->launch(std::move(task)); }
void StreamRef::wait(const Event& event) const { impl_->wait(event.state_); }
void StreamRef::synchronize() const { impl_->synchronize(); }

Stream::Stream(StreamOptions options)
    : impl_(options.device.kind == Device::Kind::cpu ? make_cpu_stream(std::move(options))
                                                     : make_cuda_stream(std::move(options))) {}
Stream::~Stream() = default;
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;

void Stream::reset_error() { impl_->reset_error(); }

Event::Event() : state_(std::make_shared<State>()) {}

void Event::record(StreamRef stream) { stream.impl_->record(state_); }

bool Event::done() const {
  if (const auto mark = state_->device_mark()) return mark->done();
  const std::scoped_lock lock(state_->mutex);
  return state_->reached >= state_->recorded;
}

void Event::synchronize() const {
  if (const auto mark = state_->device_mark()) return mark->synchronize();
  if (std::exception_ptr failure = state_->await(state_->last_count())) std::rethrow_exception(failure);
}

}  // namespace zeno
