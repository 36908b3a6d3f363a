#include "zeno/comm/failure.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>

#include "zeno/comm/joint_error.h"

namespace zeno::comm {

Ending ending_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const JointError& e) {
    return {e.what(), e.kind(), true, e.tells()};
  } catch (const Error& e) {
    return {e.what(), e.kind()};
  } catch (const std::bad_alloc&) {
    return {"[memory] the system has no memory left; use a smaller batch or a shorter --seq-len",
            ErrorKind::memory};
  } catch (const std::exception& e) {
    return {fmt::format("internal: {}", e.what())};
  } catch (...) {
    return {"an exception of unknown type"};
  }
}

std::string text_of(const Failure& failure) {
  return failure.rank < 0 ? failure.reason
                          : fmt::format("[comm] rank {} failed: {}", failure.rank, failure.reason);
}

bool FailureNote::set(int rank, std::string_view reason) noexcept {
  uint32_t none = kNone;
  if (!state_.compare_exchange_strong(none, kWriting)) return false;
  rank_ = rank;
  const size_t length = std::min(reason.size(), sizeof reason_ - 1);
  std::memcpy(reason_, reason.data(), length);
  reason_[length] = 0;
  state_.store(kSet);
  return true;
}

std::optional<Failure> FailureNote::get() const {
  if (state_.load(std::memory_order_acquire) != kSet) return std::nullopt;
  return Failure{rank_, reason_};
}

OpWait::OpWait(PeerWatch& watch, std::chrono::milliseconds deadline, Texts texts)
    : watch_(watch), deadline_(deadline), texts_(std::move(texts)) {}

void OpWait::check() {
  check_failure();
  if (std::chrono::steady_clock::now() - begin_ < deadline_) return;
  fail_all(fmt::format("[comm] nothing moved for {} ms: {}", deadline_.count(), texts_.stall()));
}

void OpWait::check_failure() {
  if (const std::optional<Failure> failure = watch_.poll()) throw_failure(*failure);
}

void OpWait::fail_transport(const std::string& reason) {
  constexpr auto kMoment = std::chrono::milliseconds(1000), kStep = std::chrono::milliseconds(5);
  for (auto waited = kStep; waited < kMoment; waited += kStep) {
    check_failure();
    std::this_thread::sleep_for(kStep);
  }
  fail_all(reason);
}

void OpWait::fail_all(const std::string& reason) {
  watch_.report(-1, reason);
  throw_failure({-1, reason});
}

void OpWait::throw_failure(const Failure& failure) {
  fail(ErrorKind::peer, "{}; this rank was in {}", text_of(failure), texts_.operation());
}

}  // namespace zeno::comm
