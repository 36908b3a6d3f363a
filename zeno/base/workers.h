// A team of threads that runs loops in parallel for the thread that owns it (an in-order CPU stream). The
// split of a loop over threads must never change results: callers give each index its own output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace zeno {

class Workers {
 public:
  // `threads` counts the calling thread. `scratch` (owned by the caller, 64-byte aligned, threads ×
  // scratch_bytes) is cut into one piece per thread. Threads that the team starts run `prepare` first.
  explicit Workers(int threads, std::byte* scratch = nullptr, size_t scratch_bytes = 0,
                   const std::function<void()>& prepare = {});
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int threads() const { return threads_; }
  size_t scratch_bytes() const { return scratch_bytes_; }
  // Scratch of one thread of the team; `thread` is what the loop body was given.
  std::byte* scratch(int thread) const { return scratch_ + size_t(thread) * scratch_bytes_; }

  // Runs body(index, thread) for every index in [0, count), dynamically balanced. Returns when all are done;
  // the first exception is rethrown. Not re-entrant.
  void for_each(int64_t count, const std::function<void(int64_t index, int thread)>& body);
  // Runs body(begin, end, thread) over [0, count) cut into ranges of at most `grain`.
  void for_ranges(int64_t count, int64_t grain,
                  const std::function<void(int64_t begin, int64_t end, int thread)>& body);

 private:
  struct Team;
  int threads_;
  std::byte* scratch_;
  size_t scratch_bytes_;
  std::unique_ptr<Team> team_;
};

}  // namespace zeno
