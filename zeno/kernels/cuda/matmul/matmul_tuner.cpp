#include "zeno/kernels/cuda/matmul/matmul_tuner.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "zeno/base/log.h"
#include "zeno/kernels/cuda/matmul/matmul_cache.h"
#include "zeno/kernels/cuda/matmul/matmul_sample.h"
#include "zeno/kernels/cuda/matmul/matmul_timing.h"

namespace zeno::cuda {
namespace {

constexpr int kChoices = 32;         // asked of the library, with and without workspace
constexpr size_t kVaried = 3;        // of the best, tried in variants too
constexpr double kHopeless = 1.3;    // this much slower than the best in its first run: not timed again
constexpr double kLarge = 100;       // µs: from here on the power limit decides
constexpr int kRunsOfLarge = 3;      // in bursts, to choose who enters the second stage
constexpr double kSmallTime = 2000;  // µs of timed runs for each candidate of a smaller product, about
constexpr int kLeastRuns = 3, kMostRuns = 21;
constexpr double kBehind = 1.06;      // this much slower in bursts: not in the second stage
constexpr size_t kFinalists = 8;      // of the second stage
constexpr int kFinalistsPerTile = 4;  // so that different ones meet
// A candidate replaces one that the library prefers only if it is faster by more than noise.
constexpr double kGain = 0.995;

struct Candidate {
  MatmulAlgorithm algorithm;
  std::vector<double> times;  // µs, in bursts
  bool alive = true;

  double median() const {
    std::vector<double> sorted = times;
    std::ranges::nth_element(sorted, sorted.begin() + long(sorted.size() / 2));
    return sorted[sorted.size() / 2];
  }
};

struct Result {
  Candidate* candidate;
  double time;
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
    std::vector<MatmulAlgorithm> best;
    for (const Candidate* c : ranking([](const Candidate& one) { return one.times.front(); })) {
      if (best.size() < most) best.push_back(c->algorithm);
    }
    return best;
  }

  // All candidates in turn, so that a change of clocks meets each of them. Returns the best time.
  double time_bursts() {
    double best = candidates_.front().times.front();
    for (const Candidate& c : candidates_) best = std::min(best, c.times.front());
    for (Candidate& c : candidates_) c.alive = c.alive && c.times.front() <= best * kHopeless;
    const int runs = best >= kLarge
                         ? kRunsOfLarge
                         : std::clamp(int(kSmallTime / std::max(best, 1.0)), kLeastRuns, kMostRuns);
    for (int i = 1; i < runs; ++i) {
      for (Candidate& c : candidates_) {
        if (c.alive) time(c);
      }
    }
    return best;
  }

  MatmulPlan burst_winner() {
    std::vector<Result> results;
    for (Candidate& c : candidates_) {
      if (c.alive) results.push_back({&c, c.median()});
    }
    const Result best = choose(results);
    return plan_of(*best.candidate, 0);
  }

  MatmulPlan sustained_winner() {
    const std::vector<Candidate*> rivals = finalists();
    std::vector<SustainedEntry> entries;
    for (const Candidate* c : rivals) entries.push_back({.run = again(*c), .burst = c->median()});
    time_sustained(stream_, entries);
    std::vector<Result> results;
    for (size_t i = 0; i < rivals.size(); ++i) {
      if (entries[i].finished) results.push_back({rivals[i], entries[i].sustained});
    }
    const Result best = choose(results);
    return plan_of(*best.candidate, best.time);
  }

  bool empty() const { return candidates_.empty(); }

 private:
  template <class Value>
  std::vector<Candidate*> ranking(const Value& value) {
    std::vector<Candidate*> order;
    for (Candidate& c : candidates_) {
      if (c.alive) order.push_back(&c);
    }
    std::ranges::stable_sort(order, {}, [&](const Candidate* c) { return value(*c); });
    return order;
  }

  // The best in bursts, in the order in which they entered: ties go to the earlier.
  std::vector<Candidate*> finalists() {
    std::vector<Candidate*> chosen;
    std::map<std::string, int> of_tile;
    const std::vector<Candidate*> order = ranking([](const Candidate& c) { return c.median(); });
    for (Candidate* c : order) {
      if (chosen.size() == kFinalists || c->median() > order.front()->median() * kBehind) break;
      if (of_tile[tile_name(c->algorithm.algo)]++ < kFinalistsPerTile) chosen.push_back(c);
    }
    std::ranges::sort(chosen);  // they lie in one array
    return chosen;
  }

  // The fastest whose result is that of the library's first choice; at worst that one itself.
  Result choose(std::vector<Result> results) {
    while (!results.empty()) {
      size_t best = 0;
      for (size_t i = 1; i < results.size(); ++i) {
        if (results[i].time < results[best].time * kGain) best = i;
      }
      if (is_right(*results[best].candidate)) return results[best];
      log_warning("[matmul] leaving out an algorithm of {}: it computes something else",
                  describe(problem_.call().key));
      results.erase(results.begin() + long(best));
    }
    return {&candidates_.front(), candidates_.front().median()};
  }
  bool is_right(const Candidate& c) {
    const Candidate& reference = candidates_.front();
    if (&c == &reference) return true;
    return agree(sample_output(problem_.call(), stream_, again(reference)),
                 sample_output(problem_.call(), stream_, again(c)));
  }

  MatmulPlan plan_of(const Candidate& c, double sustained) const {
    return {.algorithm = std::bit_cast<std::array<uint64_t, 8>>(c.algorithm.algo),
            .workspace = c.algorithm.workspace,
            .origin = MatmulPlan::Origin::tuned,
            .candidates = int(candidates_.size()),
            .burst = c.median(),
            .sustained = sustained};
  }

  cublasStatus_t run_status(const Candidate& c) const {
    return problem_.run(handle_, c.algorithm.algo, scratch_, stream_);
  }
  std::function<void()> again(const Candidate& c) {
    return [this, &c] { check_lt(run_status(c), "run a product again"); };
  }
  bool run(const Candidate& c) const { return run_status(c) == CUBLAS_STATUS_SUCCESS; }
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
  for (const MatmulAlgorithm& leader : contest.leaders(kVaried)) {
    for (const cublasLtMatmulAlgo_t& variant : variants_of(leader.algo)) {
      if (const auto accepted = problem.accept(handle, variant)) contest.enter(*accepted);
    }
  }
  return contest.time_bursts() < kLarge ? contest.burst_winner() : contest.sustained_winner();
}

}  // namespace zeno::cuda
