#include "zeno/kernels/cuda/matmul_tuner.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "zeno/kernels/cuda/matmul_cache.h"

namespace zeno::cuda {
namespace {

constexpr int kChoices = 16;          // asked of the library, with and without workspace
constexpr int kRefined = 4;           // of the best, tried in the other order of tiles too
constexpr double kTimePerOne = 2000;  // µs of timed runs for each candidate, about
constexpr int kLeastRuns = 3, kMostRuns = 21;
constexpr double kHopeless = 1.3;  // this much slower than the best in its first run: not timed again
// A candidate replaces one that the library prefers only if it is faster by more than noise.
constexpr double kGain = 0.995;

class TimedSpan {
 public:
  explicit TimedSpan(cudaStream_t stream) : stream_(stream) {
    check(cudaEventCreate(&begin_), "create an event");
    check(cudaEventCreate(&end_), "create an event");
  }
  ~TimedSpan() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  TimedSpan(const TimedSpan&) = delete;
  TimedSpan& operator=(const TimedSpan&) = delete;

  void begin() { check(cudaEventRecord(begin_, stream_), "record an event"); }
  void end() { check(cudaEventRecord(end_, stream_), "record an event"); }
  double wait_microseconds() {
    float milliseconds = 0;
    check(cudaEventSynchronize(end_), "wait for a matrix product");
    check(cudaEventElapsedTime(&milliseconds, begin_, end_), "read a time");
    return double(milliseconds) * 1000;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

struct Candidate {
  MatmulAlgorithm algorithm;
  std::vector<double> times;  // µs
  bool alive = true;

  double median() {
    std::ranges::nth_element(times, times.begin() + long(times.size() / 2));
    return times[times.size() / 2];
  }
};

class Contest {
 public:
  Contest(cublasLtHandle_t handle, MatmulProblem& problem, StreamRef stream)
      : handle_(handle),
        problem_(problem),
        stream_(native(stream)),
        scratch_(scratch(stream).first(kMatmulWorkspace)),
        span_(stream_) {}

  void enter(const MatmulAlgorithm& algorithm) {
    const auto same = [&](const Candidate& c) {
      return std::memcmp(&c.algorithm.algo, &algorithm.algo, sizeof algorithm.algo) == 0;
    };
    if (std::ranges::any_of(candidates_, same)) return;
    Candidate candidate{.algorithm = algorithm};
    candidate.alive = run(candidate);  // loads the kernel, and shows whether it runs at all
    check(cudaStreamSynchronize(stream_), "run a candidate");
    if (!candidate.alive) {
      cudaGetLastError();  // a refused launch must not show up at the next kernel
      return;
    }
    time(candidate);
    candidates_.push_back(std::move(candidate));
  }

  // The fastest after one run each, best first.
  std::vector<MatmulAlgorithm> leaders(size_t most) {
    std::vector<Candidate*> order;
    for (Candidate& c : candidates_) order.push_back(&c);
    std::ranges::sort(order, {}, [](const Candidate* c) { return c->times.front(); });
    std::vector<MatmulAlgorithm> best;
    for (size_t i = 0; i < std::min(most, order.size()); ++i) best.push_back(order[i]->algorithm);
    return best;
  }

  // All candidates in turn, so that a change of clocks meets each of them.
  void time_all() {
    double best = candidates_.front().times.front();
    for (const Candidate& c : candidates_) best = std::min(best, c.times.front());
    for (Candidate& c : candidates_) c.alive = c.times.front() <= best * kHopeless;
    const int runs = std::clamp(int(kTimePerOne / std::max(best, 1.0)), kLeastRuns, kMostRuns);
    for (int i = 1; i < runs; ++i) {
      for (Candidate& c : candidates_) {
        if (c.alive) time(c);
      }
    }
  }

  MatmulPlan winner() {
    Candidate* best = nullptr;
    double best_time = 0;
    for (Candidate& c : candidates_) {
      if (!c.alive) continue;
      const double t = c.median();
      if (best == nullptr || t < best_time * kGain) best = &c, best_time = t;
    }
    return {.algorithm = std::bit_cast<std::array<uint64_t, 8>>(best->algorithm.algo),
            .workspace = best->algorithm.workspace,
            .origin = MatmulPlan::Origin::tuned,
            .candidates = int(candidates_.size()),
            .microseconds = best_time};
  }

  bool empty() const { return candidates_.empty(); }

 private:
  bool run(const Candidate& c) {
    return problem_.run(handle_, c.algorithm.algo, scratch_, stream_) == CUBLAS_STATUS_SUCCESS;
  }
  // The fill throws the operands out of the L2 cache: in a step they are rarely there.
  void time(Candidate& c) {
    check(cudaMemsetAsync(scratch_.data(), 0, scratch_.size(), stream_), "clear the caches");
    span_.begin();
    c.alive = run(c) && c.alive;
    span_.end();
    c.times.push_back(span_.wait_microseconds());
  }

  cublasLtHandle_t handle_;
  MatmulProblem& problem_;
  cudaStream_t stream_;
  std::span<std::byte> scratch_;
  TimedSpan span_;
  std::vector<Candidate> candidates_;
};

}  // namespace

std::optional<MatmulPlan> tune(cublasLtHandle_t handle, MatmulProblem& problem, StreamRef stream) {
  Contest contest(handle, problem, stream);
  for (size_t workspace : {kMatmulWorkspace, size_t(0)}) {
    for (const MatmulAlgorithm& choice : problem.choices(handle, kChoices, workspace)) contest.enter(choice);
  }
  if (contest.empty()) return std::nullopt;
  for (const MatmulAlgorithm& leader : contest.leaders(kRefined)) {
    if (const auto other = problem.swizzled(handle, leader.algo)) contest.enter(*other);
  }
  contest.time_all();
  return contest.winner();
}

}  // namespace zeno::cuda
