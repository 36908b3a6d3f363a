// Peer snapshots without processes: who keeps whose copy, files between ranks, hosts that are lost, and how
// snapshots and checkpoints share the one copy of the state.
#include "zeno/train/saving/peer_snapshot.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_decoder.h"
#include "zeno/base/log.h"
#include "zeno/checkpoint/manifest.h"
#include "zeno/checkpoint/state_file.h"
#include "zeno/train/saving/checkpoint_state.h"
#include "zeno/train/trainer.h"

namespace zeno::train {
namespace {

using namespace std::chrono_literals;
using test::expect_error;
using test::TempDir;

TEST(PeerGroups, ThePartnerIsOnTheNextHost) {
  const PeerGroups even({7, 7, 3, 3});
  EXPECT_EQ(even.count(), 2);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(even.partner(rank), (rank + 2) % 4);
    EXPECT_EQ(even.kept_by(rank), std::vector{(rank + 2) % 4});
  }
  EXPECT_EQ(PeerGroups({0, 0, 0}).partner(1), -1);
  EXPECT_TRUE(PeerGroups({0, 0, 0}).kept_by(1).empty());

  const PeerGroups mixed({0, 5, 0, 5, 0, 9});  // hosts of 3, 2 and 1 ranks, in turns
  EXPECT_EQ(mixed.leader_of(4), 0);
  int kept = 0;
  for (int rank = 0; rank < mixed.ranks(); ++rank) {
    EXPECT_NE(mixed.group_of(mixed.partner(rank)), mixed.group_of(rank));
    for (const int other : mixed.kept_by(rank)) EXPECT_EQ(mixed.partner(other), rank);
    kept += int(mixed.kept_by(rank).size());
  }
  EXPECT_EQ(kept, mixed.ranks());
}

std::string bytes_of(int rank, size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = char((i * 31 + i / 4096 + size_t(rank)) & 0xff);
  return text;
}

TEST(PeerTransfer, MovesFilesInARingAndSaysWhatIsMissing) {
  const TempDir dir;
  const std::vector<size_t> sizes{0, 9'000'001, 4 << 20};
  comm::run_thread_ranks(3, {.deadline = 20s}, [&](comm::World& world) {
    const int rank = world.rank(), next = (rank + 1) % 3, before = (rank + 2) % 3;
    const auto file = [&](const char* kind, int of) { return dir.path() / fmt::format("{}-{}", kind, of); };
    PeerTransfer transfer(world);
    replace_file(file("out", rank), bytes_of(rank, sizes[size_t(rank)]));
    transfer.move({next, file("out", rank)}, {before, file("in", rank)});
    EXPECT_EQ(read_file(file("in", rank)), bytes_of(before, sizes[size_t(before)]));

    // Rank 1 has nothing to send: it and rank 2 learn of it, and rank 0 gets its file.
    const Path out = rank == 1 ? dir.path() / "none" : file("out", rank);
    const auto again = [&] { transfer.move({next, out}, {before, file("again", rank)}); };
    if (rank == 1) expect_error(ErrorKind::io, {"none"}, again);
    if (rank == 2) expect_error(ErrorKind::io, {"rank 1 could not send again-2"}, again);
    if (rank == 0) again();
    EXPECT_EQ(file_exists(file("again", rank)), rank == 0);

    // One way only, and texts of all lengths.
    if (rank == 0) transfer.move({2, file("out", 0)}, {});
    if (rank == 2) transfer.move({}, {0, file("third", 2)});
    const std::vector<std::string> texts =
        transfer.gather(std::string(size_t(rank) * 5000, char('a' + rank)));
    for (int r = 0; r < 3; ++r) EXPECT_EQ(texts[size_t(r)], std::string(size_t(r) * 5000, char('a' + r)));
  });
}

// Ranks as threads, on hosts that have a memory folder each.
class Hosts {
 public:
  // `few`: so little is trained that some ranks keep nothing of it.
  explicit Hosts(std::vector<int> host_of, bool few = false) : host_of_(std::move(host_of)), few_(few) {}

  Path memory(int host) const { return dir_.path() / fmt::format("host-{}", host); }
  using Body = std::function<void(comm::World&, const config::RunConfig&, PeerFolder&, zero::Engine&)>;
  void run(int stage, const std::string& resume, const Body& body) const {
    comm::run_thread_ranks(int(host_of_.size()), {.deadline = 20s}, [&](comm::World& world) {
      config::RunConfig run;
      run.out = dir_.path() / "out";
      run.peer_snapshot = 1;
      run.peer_snapshot_dir = memory(host_of_[size_t(world.rank())]);
      run.resume = resume;
      make_folders(run.out);
      PeerFolder folder(run, world);
      zero::EngineOptions options{.policy = {},
                                  .mesh = comm::Mesh::flat(world.size()),
                                  .shape = {2, 12},
                                  .device = {},
                                  .threads = 1,
                                  .snapshot_piece = checkpoint::kExtentElements};
      zero::apply_stage(options.policy, stage);
      zero::Engine engine(model(), options, world);
      body(world, run, folder, engine);
    });
  }
  // Leaves a snapshot of step 1; returns the hash of the weights.
  uint64_t take(int stage) const {
    uint64_t hash = 0;
    run(stage, "",
        [&](comm::World& world, const config::RunConfig& config, PeerFolder& folder, zero::Engine& engine) {
          engine.load(test::init_values);
          PeerSaver saver(config, folder, engine, world, 0);
          EXPECT_TRUE(saver.due(1, false));
          EXPECT_FALSE(saver.due(1, true));
          saver.start(1, "{}", false);
          saver.wait();
          EXPECT_FALSE(saver.busy());
          EXPECT_FALSE(saver.due(1, false));
          const uint64_t mine = engine.weights_hash();
          if (world.rank() == 0) hash = mine;
        });
    return hash;
  }
  // What a run that goes on finds; 0: nothing.
  uint64_t take_back(int stage) const {
    uint64_t hash = 0;
    run(stage, "auto",
        [&](comm::World& world, const config::RunConfig&, PeerFolder& folder, zero::Engine& engine) {
          const std::vector<Path> found = folder.find(stage == 0);
          if (found.empty()) return;
          engine.load([](const nn::Parameter& param, int64_t begin, std::span<float> out) {
            std::ranges::fill(out, 0.0f);
            if (!param.trainable) test::init_values(param, begin, out);
          });
          restore(checkpoint::Checkpoint::open(found.front(), checkpoint::Files::present), engine);
          const uint64_t mine = engine.weights_hash();
          if (world.rank() == 0) hash = mine;
        });
    return hash;
  }

 private:
  nn::LayerList model() const {
    if (!few_) return test::tiny_decoder(test::Family::llama, {});
    const nn::LoraOptions lora{.rank = 1,
                               .adapts = [](std::string_view name) { return name.ends_with(".0.q"); }};
    return test::tiny_decoder(test::Family::llama, {.lora = std::make_shared<nn::LoraOptions>(lora)});
  }

  std::vector<int> host_of_;
  bool few_;
  TempDir dir_;
};

TEST(PeerSaver, RanksThatKeepNothing) {
  const Hosts hosts({0, 0, 1, 1}, true);
  hosts.run(3, "", [](comm::World& world, const config::RunConfig&, PeerFolder&, zero::Engine& engine) {
    EXPECT_EQ(engine.snapshot().pieces().empty(), world.rank() > 1);
  });
  const uint64_t hash = hosts.take(3);
  EXPECT_EQ(hosts.take_back(3), hash);
  std::filesystem::remove_all(hosts.memory(1));
  EXPECT_EQ(hosts.take_back(3), hash);
}

TEST(PeerSaver, AnyHostMayBeLost) {
  for (const std::vector<int>& host_of : {std::vector{0, 0, 1}, {0, 1, 0, 2}}) {
    for (const int stage : {0, 3}) {
      const Hosts hosts(host_of);
      const uint64_t hash = hosts.take(stage);
      EXPECT_EQ(hosts.take_back(stage), hash);
      const std::set<int> all(host_of.begin(), host_of.end());
      for (const int lost : all) {
        hosts.take(stage);
        std::filesystem::remove_all(hosts.memory(lost));
        EXPECT_EQ(hosts.take_back(stage), hash) << "stage " << stage << ", host " << lost;
        EXPECT_EQ(hosts.take_back(stage), hash) << "what came is not there the second time";
      }
      // A host and the one that has its copies are too many.
      hosts.take(stage);
      for (const int lost : {0, 1}) std::filesystem::remove_all(hosts.memory(lost));
      EXPECT_EQ(hosts.take_back(stage), 0u);
    }
  }
}

// A file system of any size; knows what was renamed, and can hold up what is written below a folder.
class WatchedFileSystem final : public FileSystem {
 public:
  uint64_t room = uint64_t(1) << 40;
  Path held;                       // writes below it wait ...
  std::function<bool()> let_pass;  // ... until this is true

  int open(const char* path, int flags, mode_t mode) override {
    const int fd = FileSystem::open(path, flags, mode);
    const std::scoped_lock lock(mutex_);
    held_.erase(fd);
    if (!held.empty() && std::string_view(path).starts_with(held.string())) held_.insert(fd);
    return fd;
  }
  ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) override {
    bool wait = false;
    {
      const std::scoped_lock lock(mutex_);
      wait = held_.contains(fd);
    }
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (wait && !let_pass()) {
      if (std::chrono::steady_clock::now() > end) late = true;
      if (late) break;
      std::this_thread::sleep_for(1ms);
    }
    return FileSystem::pwrite(fd, data, bytes, offset);
  }
  int rename(const char* from, const char* to) override {
    const std::scoped_lock lock(mutex_);
    if (Path(to).filename() == checkpoint::kManifestName) manifests.push_back(Path(to).parent_path());
    return FileSystem::rename(from, to);
  }
  int statvfs(const char*, struct statvfs* info) override {
    *info = {};
    info->f_frsize = 1;
    info->f_bavail = room;
    return 0;
  }

  std::vector<Path> manifests;
  std::atomic<bool> late{false};

 private:
  std::mutex mutex_;
  std::set<int> held_;
};

config::ParsedConfig run_of(const TempDir& dir, const std::vector<config::FlagOverride>& more) {
  std::vector<config::FlagOverride> flags = {
      {"zeno.model", std::string(ZENO_SOURCE_DIR) + "/tests/golden/curve", "--model"},
      {"zeno.data", "generated", "--data"},
      {"zeno.out", dir.path() / "out", "--out"},
      {"zeno.cache", dir.path() / "cache", "--cache"},
      {"zeno.device", "cpu", "--device"},
      {"zeno.auto", "false", "--no-auto"},
      {"zeno.seq_len", "32", "--seq-len"},
      {"zeno.ranks", "2", "--ranks"},
      {"zero_optimization.stage", "3", "--stage"},
      {"train_micro_batch_size_per_gpu", "1", "--micro-batch"},
      {"zeno.peer_snapshot_dir", dir.path() / "memory", "--peer-snapshot-dir"}};
  flags.insert(flags.end(), more.begin(), more.end());
  return config::load_config("", flags);
}

TEST(PeerSaver, WithoutRoomTheRunDoesNotStart) {
  set_log_level(LogLevel::warning);
  const TempDir dir;
  WatchedFileSystem files;
  files.room = 1000;
  const FileSystemOverride override(files);
  expect_error(ErrorKind::memory, {"2 snapshots of 2 ranks need", " B are free there", "--shm-size"}, [&] {
    train(run_of(dir, {{"zeno.peer_snapshot", "1", "--peer-snapshot"}}));
  });
  EXPECT_EQ(read_file(dir.path() / "out" / "metrics.jsonl").find("loss"), std::string::npos);
}

// The disk takes its time with step 5: training goes on, no snapshot overwrites the copy that is still being
// written, and the one of step 5 itself is in memory at once.
TEST(PeerSaver, SnapshotsArePutOffWhileADiskIsSlow) {
  set_log_level(LogLevel::warning);
  const TempDir dir, plain;
  WatchedFileSystem files;
  files.held = dir.path() / "out" / "checkpoints" / "step-00000005";
  files.let_pass = [&] {
    std::ifstream metrics(dir.path() / "out" / "metrics.jsonl");
    return std::count(std::istreambuf_iterator<char>(metrics), {}, '\n') >= 8;
  };
  const std::vector<config::FlagOverride> steps{{"zeno.steps", "12", "--steps"}};
  report::RunSummary summary;
  {
    const FileSystemOverride override(files);
    summary = train(run_of(dir, {steps[0],
                                 {"zeno.peer_snapshot", "1", "--peer-snapshot"},
                                 {"zeno.save_every", "5", "--save-every"},
                                 {"zeno.keep_last", "0", "--keep-last"}}));
  }
  EXPECT_FALSE(files.late) << "training waited for the disk";
  std::set<int64_t> memory, disk;
  for (const Path& folder : files.manifests) {
    const bool in_memory = folder.string().starts_with((dir.path() / "memory").string());
    (in_memory ? memory : disk).insert(*checkpoint::step_of(folder.filename().string()));
  }
  EXPECT_EQ(disk, (std::set<int64_t>{5, 10, 12}));
  for (const int64_t step : {5, 10, 12}) EXPECT_TRUE(memory.contains(step)) << step;
  for (const int64_t step : {6, 7, 8}) EXPECT_FALSE(memory.contains(step)) << step;
  // Two writers read the same copy: what is on the disk is right.
  for (const int64_t step : disk) {
    const Path folder = dir.path() / "out" / "checkpoints" / checkpoint::checkpoint_name(step);
    EXPECT_EQ(checkpoint::find_damage(folder), std::vector<std::string>{});
  }
  EXPECT_EQ(train(run_of(plain, steps)).weights_hash, summary.weights_hash);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path() / "memory"));
}

// What a snapshot after every step costs; looked at, not tested.
TEST(PeerSaver, PrintsItsPrice) {
  set_log_level(LogLevel::warning);
  const auto step_ms = [](const std::string& every) {
    const TempDir dir;
    const auto begin = std::chrono::steady_clock::now();
    train(run_of(dir, {{"zeno.steps", "40", "--steps"},
                       {"zeno.peer_snapshot_dir", "/dev/shm", "--peer-snapshot-dir"},
                       {"zeno.peer_snapshot", every, "--peer-snapshot"}}));
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() / 40;
  };
  step_ms("0");
  const double without = step_ms("0"), with = step_ms("1"), tenth = step_ms("10");
  fmt::print(
      "a step, start and end included: {:.2f} ms without snapshots, {:.2f} ms with one each, {:.2f} ms "
      "with one in ten\n",
      without, with, tenth);
}

}  // namespace
}  // namespace zeno::train
