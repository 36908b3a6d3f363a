// Disks that fail under training. Whatever happens to the n-th request, a run with states on disk ends with
// the bits of an undisturbed one, or every rank ends with an error: the one whose disk failed names the file,
// the place in it and whose states they are, the others name that rank. What was saved before is gone on from
// to the same bits.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>

#include "tests/device/faulty_queue.h"
#include "tests/support/engine_run.h"
#include "tests/support/faulty_files.h"
#include "tests/support/homes.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"
#include "zeno/base/rng.h"
#include "zeno/checkpoint/state_file.h"
#include "zeno/train/saving/checkpoint_state.h"

namespace zeno::test {
namespace {

namespace fs = std::filesystem;
using checkpoint::Checkpoint;
using Clock = std::chrono::steady_clock;

constexpr int kSteps = 4, kSaved = 2;

struct Attempt {
  std::vector<std::string> errors;  // by rank
  std::vector<ErrorKind> kinds;
  std::vector<double> losses;
  uint64_t hash = 0;
  bool failed() const { return !errors[0].empty(); }
};

class OffloadFaults : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::error);
    spec_.world = ranks();
    zero::apply_stage(spec_.policy, 3);
    spec_.policy.compute = DType::bf16;
    Homes{Tier::disk, Tier::disk, false}.set(spec_, {});
    spec_.policy.offload.host_states = spec_.policy.offload.host_params = 0;
    spec_.disk.folders = {disk_.path() / "a", disk_.path() / "b"};
    for (const Path& folder : spec_.disk.folders) make_folders(folder);
    spec_.disk.request_bytes = 2 * kDirectAlign;
    spec_.disk.depth = 2;
    reference_ = attempt();
    ASSERT_FALSE(reference_.failed()) << reference_.errors[0];
  }
  void TearDown() override { set_log_level(LogLevel::info); }

  int ranks() const { return GetParam(); }
  int failing() const { return ranks() - 1; }

  // A run of all steps, from the newest checkpoint where there is one.
  Attempt attempt() {
    Attempt result{.errors = std::vector<std::string>(size_t(ranks())),
                   .kinds = std::vector<ErrorKind>(size_t(ranks()))};
    const auto begin = Clock::now();
    try {
      comm::run_thread_ranks(ranks(), {.deadline = std::chrono::seconds(20)}, [&](comm::World& world) {
        try {
          train(world, result);
        } catch (const Error& error) {
          result.errors[size_t(world.rank())] = error.what();
          result.kinds[size_t(world.rank())] = error.kind();
          throw;
        }
      });
    } catch (const Error&) {
      EXPECT_TRUE(result.failed());
    }
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(15));
    for (const Path& folder : spec_.disk.folders) EXPECT_TRUE(fs::is_empty(folder)) << "a swap file is left";
    return result;
  }

  void train(comm::World& world, Attempt& result) {
    RunSpec spec = spec_;
    if (world.rank() == failing() && make_queue_) spec.disk.make_queue = make_queue_;
    zero::Engine engine = make_engine(spec, world);
    const Path saved = folder_.path() / checkpoint::checkpoint_name(kSaved);
    const int first = file_exists(saved / checkpoint::kManifestName) ? kSaved : 0;
    world.exchange("", "everybody has looked");
    first > 0 ? train::restore(Checkpoint::open(saved), engine) : engine.load(init_values);
    std::vector<double> losses;
    if (first == 0) {
      losses = train_steps(spec, engine, world, 0, kSaved);
      save(folder_.path(), kSaved, engine, world);  // one that fails is missed, no more
    }
    const std::vector<double> more = train_steps(spec, engine, world, kSaved, kSteps);
    losses.insert(losses.end(), more.begin(), more.end());
    const uint64_t hash = engine.weights_hash();
    if (world.rank() == 0) result.losses = losses, result.hash = hash;
  }

  void forget_checkpoints() {
    fs::remove_all(folder_.path());
    make_folders(folder_.path());
  }
  void expect_whole(const Attempt& result, const std::string& what) const {
    ASSERT_FALSE(result.failed()) << what << ": " << result.errors[0];
    const size_t first = reference_.losses.size() - result.losses.size();
    EXPECT_EQ(result.losses,
              std::vector(reference_.losses.begin() + ptrdiff_t(first), reference_.losses.end()))
        << what;
    EXPECT_EQ(result.hash, reference_.hash) << what;
  }
  // Both ends are right: the same bits, or errors that say it all.
  void expect_told(const Attempt& result, const std::string& what) const {
    if (!result.failed()) return expect_whole(result, what);
    for (int rank = 0; rank < ranks(); ++rank) {
      const std::string& error = result.errors[size_t(rank)];
      const auto told = [&](std::string_view part) {
        EXPECT_TRUE(has(error, part)) << what << ": " << error;
      };
      if (rank == failing()) {
        EXPECT_EQ(int(result.kinds[size_t(rank)]), int(ErrorKind::io)) << what << ": " << error;
      } else {
        EXPECT_EQ(int(result.kinds[size_t(rank)]), int(ErrorKind::peer)) << what << ": " << error;
        told(fmt::format("rank {} failed", failing()));
      }
      told(fmt::format("zeno-rank{}", failing()));
      told(" at byte");
      told(", elements ");
      EXPECT_TRUE(has(error, "optimizer states of ") || has(error, "parameters of "))
          << what << ": " << error;
    }
  }
  // All numbers below `count`, or a few of them.
  static std::vector<int64_t> some(int64_t count, uint64_t seed, int few) {
    std::vector<int64_t> chosen;
    for (int64_t n = 0; n < (ZENO_FULL_TESTS ? count : few); ++n)
      chosen.push_back(ZENO_FULL_TESTS ? n : int64_t(random_bits(seed, 2, uint64_t(n)) % uint64_t(count)));
    return chosen;
  }
  // Lets the failing rank's disk have this fault.
  void use(DiskFault& fault) {
    make_queue_ = [&fault](int depth) -> std::unique_ptr<DiskQueue> {
      return std::make_unique<FaultyQueue>(make_disk_queue(depth), fault);
    };
  }
  int64_t count_requests(bool write) {
    forget_checkpoints();
    DiskFault none{.write = write};
    use(none);
    expect_whole(attempt(), "no fault");
    return none.requests;
  }

  TempDir disk_{memory_folder()}, folder_{memory_folder()};
  RunSpec spec_;
  std::function<std::unique_ptr<DiskQueue>(int)> make_queue_;
  Attempt reference_;
};
INSTANTIATE_TEST_SUITE_P(Ranks, OffloadFaults, testing::Values(1, 2));

TEST_P(OffloadFaults, RequestsThatFailOrAreDamaged) {
  struct Kind {
    const char* name;
    bool write;
    int64_t result;
    bool flip;
  };
  const int64_t requests[] = {count_requests(false), count_requests(true)};
  int failures = 0;
  for (const Kind& kind :
       {Kind{"read EIO", false, -EIO, false}, Kind{"read of nothing", false, 0, false},
        Kind{"read flipped", false, 0, true}, Kind{"write EIO", true, -EIO, false},
        Kind{"write ENOSPC", true, -ENOSPC, false}, Kind{"write flipped", true, 0, true}}) {
    for (const int64_t at : some(requests[kind.write], uint64_t(-kind.result) + kind.flip, 2)) {
      const std::string what = fmt::format("{} {} of {}", kind.name, at, requests[kind.write]);
      forget_checkpoints();
      DiskFault fault{.write = kind.write, .at = at, .result = kind.result, .flip = kind.flip};
      use(fault);
      const Attempt result = attempt();
      EXPECT_GT(fault.requests, at) << what;
      expect_told(result, what);
      failures += result.failed();
      make_queue_ = nullptr;
      expect_whole(attempt(), "after " + what);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(failures, 6);
}

// Cut before a page is through, within one and behind one; interrupted and busy: all are gone on with.
TEST_P(OffloadFaults, ShortTransfersAreContinued) {
  spec_.disk.request_bytes = 3 * kDirectAlign;
  for (const bool write : {false, true}) {
    const int64_t requests = count_requests(write);
    for (const int64_t result : {int64_t(100), int64_t(kDirectAlign), int64_t(-EAGAIN), int64_t(-EINTR)}) {
      for (const int64_t at : some(requests, uint64_t(result), 1)) {
        forget_checkpoints();
        DiskFault fault{.write = write, .at = at, .count = 3, .result = result};
        use(fault);
        expect_whole(attempt(), fmt::format("write {} result {} at {}", write, result, at));
      }
    }
  }
}

// The same through the seam of file calls.
TEST_P(OffloadFaults, FileCallsOfTheSwapFile) {
  make_queue_ = make_thread_queue;
  const std::string swap = fmt::format("rank{}.swap", failing());
  FaultyFiles counting(swap);
  {
    forget_checkpoints();
    const FileSystemOverride use(counting);
    expect_whole(attempt(), "no fault");
  }
  const int64_t calls = counting.count(FileCall::pwrite);
  ASSERT_GT(calls, 50);
  for (const auto& fault :
       {FaultyFiles::Fault{.error = EIO}, FaultyFiles::Fault{.error = ENOSPC, .forever = true},
        FaultyFiles::Fault{.error = 0}}) {
    for (int64_t at : some(calls, uint64_t(fault.error), 1)) {
      const std::string what = fmt::format("write {} of {}: {}", at, calls, fault.error);
      forget_checkpoints();
      FaultyFiles::Fault now = fault;
      now.at = at;
      {
        FaultyFiles files(swap, now);
        const FileSystemOverride use(files);
        const Attempt result = attempt();
        fault.error == 0 ? expect_whole(result, what) : expect_told(result, what);
        EXPECT_TRUE(fault.error == 0 || result.failed()) << what;
      }
      expect_whole(attempt(), "after " + what);
    }
  }
}

}  // namespace
}  // namespace zeno::test
