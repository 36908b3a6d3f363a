// The first failure of a world, and how waiting ranks learn of it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "zeno/base/error.h"

namespace zeno::comm {

struct Failure {
  int rank = -1;  // -1: no single rank; the ranks disagree or do not move
  std::string reason;
};

// The text and kind of an exception; internal when it is not an Error.
struct Ending {
  std::string text;
  ErrorKind kind = ErrorKind::internal;
  bool joint = false, tells = true;  // see JointError
  // False for a wrong flag, or what all ranks found out together: neither has to do with their operations.
  bool deserves_record() const { return kind != ErrorKind::usage && !joint; }
};
Ending ending_of(const std::exception_ptr& error);

// "rank 2 failed: ...", or the reason alone.
std::string text_of(const Failure& failure);

// Lives in memory that all ranks of a host see. Keeps the first failure. Lock-free.
class FailureNote {
 public:
  // Returns false when there was one already.
  bool set(int rank, std::string_view reason) noexcept;
  std::optional<Failure> get() const;

 private:
  enum : uint32_t { kNone, kWriting, kSet };
  std::atomic<uint32_t> state_{kNone};
  int32_t rank_ = -1;
  char reason_[1500] = {};
};

// How communicators learn of failures and report them. Thread rule: any thread may call.
class PeerWatch {
 public:
  virtual ~PeerWatch() = default;
  // The world's failure, if there is one. Also looks for ranks that have died and for failures on other
  // hosts, so whoever waits calls it repeatedly.
  virtual std::optional<Failure> poll() = 0;
  virtual void report(int rank, std::string_view reason) noexcept = 0;
};

// The deadline of one operation: check() throws Error(peer) once the world has failed or the deadline has
// passed.
class OpWait {
 public:
  struct Texts {
    std::function<std::string()> operation;  // "reduce_scatter of unit blocks.3 (operation 17 on 'reduce')"
    std::function<std::string()> stall;      // who is missing
  };
  OpWait(PeerWatch& watch, std::chrono::milliseconds deadline, Texts texts);

  void check();
  // Throws if the world has failed; does not look at the clock.
  void check_failure();
  // A transport has failed, perhaps because a process died, which is seen a little later than its closed
  // connection. Waits a moment for that failure and throws it if it comes; otherwise fails the world with
  // `reason`.
  [[noreturn]] void fail_transport(const std::string& reason);
  // Fails the world with `reason` and throws it here.
  [[noreturn]] void fail_all(const std::string& reason);

 private:
  [[noreturn]] void throw_failure(const Failure& failure);

  PeerWatch& watch_;
  const std::chrono::milliseconds deadline_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  Texts texts_;
};

}  // namespace zeno::comm
