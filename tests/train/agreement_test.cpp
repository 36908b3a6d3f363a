// What ranks compare at the start, without processes: threads with variables of a launcher take themselves
// for processes of several hosts.
#include "zeno/train/agreement.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "tests/support/temp_dir.h"
#include "zeno/train/long_work.h"

namespace zeno::train {
namespace {

using namespace std::chrono_literals;

class AgreementOfThreads : public testing::Test {
 protected:
  void SetUp() override {
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  }
  void TearDown() override {
    unsetenv("OMPI_COMM_WORLD_RANK");
    unsetenv("OMPI_COMM_WORLD_SIZE");
  }
  std::string folder(const std::string& name) const {
    std::filesystem::create_directories(dir_.path() / name);
    return (dir_.path() / name).string();
  }
  config::ParsedConfig config(const std::string& data) const {
    config::ParsedConfig parsed;
    parsed.config.run.model = folder("model");
    parsed.config.run.data = {data};
    return parsed;
  }
  test::TempDir dir_;
};

// Counts what its rank sends.
class CountingWorld final : public comm::World {
 public:
  explicit CountingWorld(comm::World& world) : world_(world) {}

  size_t sent() const { return sent_; }
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  int local_rank() const override { return world_.local_rank(); }
  int local_size() const override { return world_.local_size(); }
  int ranks_per_host() const override { return world_.ranks_per_host(); }
  std::unique_ptr<comm::Communicator> communicator(std::string_view name, Device device,
                                                   std::span<const int> ranks,
                                                   comm::Reduction reduction) override {
    return world_.communicator(name, device, ranks, reduction);
  }
  Allocator allocator(Device device) override { return world_.allocator(device); }
  void fail(std::string_view reason) noexcept override { world_.fail(reason); }
  void record_failure(std::string_view error) noexcept override { world_.record_failure(error); }
  std::string flight_records() const override { return world_.flight_records(); }
  void finish() override { world_.finish(); }

 private:
  std::vector<std::string> exchange_values(std::string_view bytes, std::string_view what) override {
    sent_ += bytes.size();
    return world_.exchange(bytes, what);
  }

  comm::World& world_;
  size_t sent_ = 0;
};

TEST_F(AgreementOfThreads, OnlyTheRankThatDiffersSendsItsList) {
  constexpr int kFiles = 200;
  for (int rank = 0; rank < 4; ++rank) {
    folder(std::to_string(rank));
    for (int i = 0; i < kFiles; ++i)
      dir_.write(fmt::format("{}/{:03}.jsonl", rank, i),
                 fmt::format("{{\"text\":\"{}\"}}\n", rank == 2 && i == 150 ? 999 : i + 100));
  }
  std::array<size_t, 4> sent{};
  std::array<std::string, 4> errors;
  comm::run_thread_ranks(4, {}, [&](comm::World& world) {
    CountingWorld counting(world);
    const auto rank = size_t(world.rank());
    try {
      agree_on_inputs(config(folder(std::to_string(rank))), counting);
    } catch (const Error& error) {
      errors[rank] = error.what();
    }
    sent[rank] = counting.sent();
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("2/150.jsonl differs between rank 2 on "), std::string::npos) << error;
    EXPECT_EQ(error, errors[0]);
  }
  EXPECT_GT(sent[0], kFiles * 50u);
  EXPECT_GT(sent[2], kFiles * 50u);
  EXPECT_LT(sent[1], 500u);
  EXPECT_LT(sent[3], 500u);
}

// Reads of one file take long.
class SlowFile final : public FileSystem {
 public:
  explicit SlowFile(std::string name) : name_(std::move(name)) {}

  int open(const char* path, int flags, mode_t mode) override {
    const int fd = FileSystem::open(path, flags, mode);
    if (std::string_view(path).ends_with(name_)) slow_ = fd;
    return fd;
  }
  ssize_t pread(int fd, void* data, size_t bytes, off_t offset) override {
    if (fd == slow_) std::this_thread::sleep_for(1s);
    return FileSystem::pread(fd, data, bytes, offset);
  }

 private:
  std::string name_;
  std::atomic<int> slow_ = -1;
};

TEST_F(AgreementOfThreads, RanksMeetWhileOneReads) {
  folder("model");
  dir_.write("model/tokenizer.json", std::string(3 << 20, ' '));
  const std::string data = dir_.write("data.jsonl", "{\"text\":\"a\"}\n");
  SlowFile slow("tokenizer.json");
  const FileSystemOverride in_use(slow);
  const auto begin = std::chrono::steady_clock::now();
  comm::run_thread_ranks(2, {.deadline = 2s},
                         [&](comm::World& world) { agree_on_inputs(config(data), world); });
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 3s);  // the others have waited beyond the deadline
}

TEST(LongWork, AFailureIsThatOfAllRanks) {
  std::atomic<int> failed = 0;
  comm::run_thread_ranks(3, {}, [&](comm::World& world) {
    std::function<void(std::stop_token)> work;
    if (world.rank() == 1) work = [](const std::stop_token&) { fail(ErrorKind::data, "no good"); };
    try {
      work_long_together(world, "a test", work);
    } catch (const Error& error) {
      failed += error.kind() == ErrorKind::data && std::string(error.what()) == "no good";
    }
  });
  EXPECT_EQ(failed, 3);
}

TEST(LongWork, StopsWhenTheWorldFails) {
  std::atomic<bool> stopped = false;
  EXPECT_THROW(comm::run_thread_ranks(2, {},
                                      [&](comm::World& world) {
                                        if (world.rank() == 1) fail(ErrorKind::data, "rank 1 is gone");
                                        work_long_together(world, "a test", [&](const std::stop_token& stop) {
                                          while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
                                          stopped = true;
                                        });
                                      }),
               Error);
  EXPECT_TRUE(stopped);
}

}  // namespace
}  // namespace zeno::train
