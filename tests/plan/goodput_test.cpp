#include "zeno/plan/goodput.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace zeno::plan {
namespace {

// The run itself: trains, saves, fails at random moments, goes on from the last checkpoint that was safe.
double simulated(const Failures& f, double interval, int segments) {
  std::mt19937_64 engine(7);
  std::exponential_distribution<double> next(1 / f.between);
  double clock = 0, fails_at = next(engine), done = 0;
  const double all = segments * interval;
  // Until `seconds` more have passed, or a failure comes first.
  const auto passes = [&](double seconds) {
    if (clock + seconds <= fails_at) {
      clock += seconds;
      return true;
    }
    clock = fails_at + f.restart;
    fails_at = clock + next(engine);
    return false;
  };
  while (done < all) {
    // The checkpoint at `done` is taken already; what follows is safe once the next one is.
    if (passes(interval + f.stall)) {
      done += interval;
    } else {
      while (!passes(f.commit)) {
      }  // what was trained while that checkpoint was on its way is trained again
    }
  }
  return all / clock;
}

TEST(Goodput, IsThatOfASimulatedRun) {
  for (const Failures f : {Failures{10'000, 300, 5, 0}, Failures{3'000, 600, 1, 0},
                           Failures{1'000, 60, 20, 0}, Failures{20'000, 300, 1, 120}}) {
    for (double interval : {200.0, 1000.0, 4000.0})
      EXPECT_NEAR(goodput(f, interval), simulated(f, interval, 20'000), 0.03) << f.between << ' ' << interval;
  }
}

// Young and Daly: the square root of twice the stall times the time between failures, when both are far
// apart. papers.md: 10 s, 512 devices, 13k to 51k device-hours: 23 to 45 minutes, 1.5 to 0.75 % lost.
TEST(Goodput, BestIntervalIsYoungsAndDalys) {
  for (const auto& [hours, minutes, lost] : {std::tuple{13'000.0, 23.0, 0.015}, {51'000.0, 45.0, 0.0075}}) {
    const Failures f{.between = run_mtbf(hours, 512), .stall = 10};
    EXPECT_NEAR(best_interval(f) / 60, minutes, 0.05 * minutes);
    EXPECT_NEAR(best_interval(f), std::sqrt(2 * f.stall * f.between), 0.02 * best_interval(f));
    EXPECT_NEAR(1 - goodput(f, best_interval(f)), lost, 0.1 * lost);
  }
  for (const auto& [hours, minutes, lost] : {std::tuple{13'000.0, 4.0, 0.08}, {51'000.0, 8.0, 0.04}}) {
    const Failures f{.between = run_mtbf(hours, 16'384), .stall = 10};
    EXPECT_NEAR(best_interval(f) / 60, minutes, 0.1 * minutes);
    EXPECT_NEAR(1 - goodput(f, best_interval(f)), lost, 0.1 * lost);
  }
}

TEST(Goodput, NothingIsBetterThanTheBest) {
  for (double between : {100.0, 1e4, 1e7}) {
    const Failures f{between, 120, 3, 40};
    const double best = best_interval(f);
    EXPECT_GE(best, f.commit * 0.999);
    for (double factor : {0.5, 0.9, 1.1, 2.0}) {
      if (best * factor < f.commit) continue;
      EXPECT_LE(goodput(f, best * factor), goodput(f, best) + 1e-12);
    }
  }
}

// Llama 3's 54 days: 419 failures of 16,384 devices, more than 90 % of the time effective.
TEST(Goodput, LlamaThreeOnSixteenThousand) {
  const Failures f{.between = 54 * 86400.0 / 419, .restart = 600, .stall = 5, .commit = 60};
  EXPECT_GT(goodput(f, best_interval(f)), 0.9);
}

}  // namespace
}  // namespace zeno::plan
