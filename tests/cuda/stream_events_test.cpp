// CPU and CUDA streams that wait for each other: in order, exact, never through the calling thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/device/buffer.h"
#include "zeno/device/copy.h"
#include "zeno/device/device.h"
#include "zeno/device/graph.h"
#include "zeno/device/stream.h"

namespace zeno::cuda_tests {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr Device kGpu{Device::Kind::cuda, 0};

class StreamEvents : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count(Device::Kind::cuda) == 0) GTEST_SKIP() << "no GPU";
  }
  void TearDown() override {
    for (const Block& block : blocks_) block.release(block.data);
  }

  static Stream gpu_stream(const char* name) {
    return Stream({.device = kGpu, .name = name, .cpu_waits = true});
  }
  int64_t* pinned(size_t count) { return keep(allocate_pinned(kGpu, count * sizeof(int64_t)), count); }
  int64_t* on_device(size_t count) {
    blocks_.push_back(allocator_of(kGpu)(count * sizeof(int64_t)));
    return reinterpret_cast<int64_t*>(blocks_.back().data);
  }
  static void copy(const Stream& stream, int64_t* to, const int64_t* from, size_t count) {
    copy_async(stream, reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from),
               count * sizeof(int64_t));
  }
  // Holds a CPU stream until the flag is set.
  static void hold(const Stream& stream, std::atomic<bool>& go) {
    stream.ref().launch([&go](Workers&) {
      while (!go) std::this_thread::sleep_for(50us);
    });
  }

 private:
  int64_t* keep(Block block, size_t count) {
    blocks_.push_back(std::move(block));
    auto* words = reinterpret_cast<int64_t*>(blocks_.back().data);
    std::fill_n(words, count, 0);
    return words;
  }
  std::vector<Block> blocks_;
};

// The CPU adds one to what came back, the GPU takes it up and brings it down again, through two events that
// are recorded again and again. The first rounds are queued before any of them runs; more would fill the
// driver's queue.
TEST_F(StreamEvents, PingPongKeepsTheOrder) {
  constexpr size_t kWords = 4096;
  constexpr int kRounds = 1000;
  int64_t *out = pinned(kWords), *back = pinned(kWords), *device = on_device(kWords);
  std::atomic<int> wrong{0};
  std::atomic<bool> go{false};
  const Stream cpu({.name = "cpu"}), gpu = gpu_stream("gpu");
  Event written, returned;
  hold(cpu, go);
  for (int round = 0; round < kRounds; ++round) {
    if (round == 100) go = true;
    cpu.ref().launch([=, &wrong](Workers&) {
      for (size_t i = 0; i < kWords; ++i) {
        wrong += back[i] != round;
        out[i] = back[i] + 1;
      }
    });
    written.record(cpu);
    gpu.ref().wait(written);
    copy(gpu, device, out, kWords);
    copy(gpu, back, device, kWords);
    returned.record(gpu);
    cpu.ref().wait(returned);
  }
  cpu.synchronize();
  gpu.synchronize();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(back[0], kRounds);
  EXPECT_EQ(back[kWords - 1], kRounds);
}

// A wait refers to the record before it, in both directions, whatever is recorded later.
TEST_F(StreamEvents, RecordingAgainDoesNotMoveAnEarlierWait) {
  std::atomic<bool> go{false};
  const Stream slow({.name = "slow"}), cpu({.name = "cpu"});
  const Stream held = gpu_stream("held"), gpu = gpu_stream("gpu");
  Event from_cpu, from_gpu;
  from_cpu.record(slow);
  gpu.ref().wait(from_cpu);
  from_gpu.record(held);
  cpu.ref().wait(from_gpu);

  hold(slow, go);
  from_cpu.record(slow);
  held.ref().wait(from_cpu);
  from_gpu.record(held);
  gpu.synchronize();  // either would hang if it waited for the second record
  cpu.synchronize();
  EXPECT_FALSE(from_cpu.done());
  EXPECT_FALSE(from_gpu.done());
  go = true;
  held.synchronize();
  EXPECT_TRUE(from_gpu.done());
}

TEST_F(StreamEvents, OldWaitPassesThoughTheEventWasRecordedAgain) {
  std::atomic<bool> first{false}, second{false};
  const Stream a({.name = "a"}), b({.name = "b"}), gpu = gpu_stream("gpu");
  Event event;
  hold(a, first);
  event.record(a);
  gpu.ref().wait(event);  // not yet reached: the GPU really waits
  hold(b, second);
  event.record(b);  // by another stream
  first = true;
  gpu.synchronize();
  EXPECT_FALSE(event.done());
  second = true;
  b.synchronize();
}

TEST_F(StreamEvents, FailedCpuTaskDoesNotHangTheGpuAndItsErrorArrives) {
  const Stream cpu({.name = "cpu"}), gpu = gpu_stream("gpu"), behind = gpu_stream("behind");
  const Stream writer({.name = "writer"});
  bool ran = false;
  std::atomic<bool> go{false};
  Event read, computed, copied;
  hold(cpu, go);
  cpu.ref().launch([](Workers&) { fail(ErrorKind::io, "the disk is gone"); });
  read.record(cpu);
  gpu.ref().wait(read);
  fill_zero_async(gpu, reinterpret_cast<std::byte*>(on_device(1)), sizeof(int64_t));
  computed.record(gpu);
  behind.ref().wait(computed);  // two GPU streams away from the error
  copied.record(behind);
  writer.ref().wait(copied);
  writer.ref().launch([&](Workers&) { ran = true; });
  go = true;
  EXPECT_THROW(writer.synchronize(), Error);
  EXPECT_FALSE(ran);
  EXPECT_THROW(gpu.synchronize(), Error);
  EXPECT_THROW(behind.synchronize(), Error);
  EXPECT_THROW(copied.synchronize(), Error);
  EXPECT_THROW(cpu.synchronize(), Error);
}

// More work than the driver's queues hold: a launch that waits for room must not keep the CPU streams from
// going on. Three streams in a circle: the CPU waits for `first`, `second` waits for the CPU.
TEST_F(StreamEvents, FullQueuesDoNotStopTheCpuStreams) {
  constexpr size_t kWords = size_t(8) << 20;
  auto* data = reinterpret_cast<std::byte*>(on_device(kWords));
  auto* word = reinterpret_cast<std::byte*>(on_device(1));
  const Stream first = gpu_stream("first"), second = gpu_stream("second"), cpu({.name = "cpu"});
  for (int i = 0; i < 1000; ++i) fill_zero_async(first, data, kWords * sizeof(int64_t));
  Event computed, updated;
  computed.record(first);
  cpu.ref().wait(computed);
  cpu.ref().launch([](Workers&) { std::this_thread::sleep_for(100ms); });
  updated.record(cpu);
  second.ref().wait(updated);
  for (int i = 0; i < 20000; ++i) fill_zero_async(second, word, sizeof(int64_t));
  second.synchronize();
  EXPECT_TRUE(updated.done());
}

// The host is back at once though nothing can run yet.
TEST_F(StreamEvents, QueueingAheadDoesNotBlockTheHost) {
  std::atomic<bool> go{false};
  int64_t *host = pinned(1), *device = on_device(1);
  const Stream cpu({.name = "cpu"}), gpu = gpu_stream("gpu");
  std::vector<Event> up(100), down(100);
  hold(cpu, go);
  for (size_t i = 0; i < up.size(); ++i) {
    up[i].record(cpu);
    gpu.ref().wait(up[i]);
    copy(gpu, device, host, 1);
    down[i].record(gpu);
    cpu.ref().wait(down[i]);
    cpu.ref().launch([host](Workers&) { ++*host; });
  }
  EXPECT_FALSE(up.front().done());  // we came here before anything ran
  EXPECT_FALSE(down.front().done());
  go = true;
  cpu.synchronize();
  EXPECT_EQ(*host, 100);
}

TEST_F(StreamEvents, CpuStreamsCannotWaitWhereNothingTellsThem) {
  const Stream plain({.device = kGpu, .name = "plain"}), cpu({.name = "cpu"});
  Event event;
  event.record(plain);
  EXPECT_THROW(cpu.ref().wait(event), Error);
}

TEST_F(StreamEvents, GraphsRecordEventsAsBefore) {
  int64_t *host = pinned(2), *a = on_device(1);
  const Stream stream({.device = kGpu, .name = "graph"}), side({.device = kGpu, .name = "side"});
  Event fork, join;
  Graph graph;
  host[0] = 42;
  graph.begin(stream);
  fork.record(stream);
  side.ref().wait(fork);
  copy(side, a, host, 1);
  join.record(side);
  stream.ref().wait(join);
  copy(stream, host + 1, a, 1);
  graph.end(stream);
  graph.replay(stream);
  stream.synchronize();
  EXPECT_EQ(host[1], 42);
}

// Large blocks take the path with threads; odd sizes stay odd.
TEST_F(StreamEvents, LargePinnedMemoryIsCopiedExactly) {
  constexpr size_t kBytes = (size_t(2) << 30) + 12345;
  const auto begin = Clock::now();
  const Block from = allocate_pinned(kGpu, kBytes);
  const double s = std::chrono::duration<double>(Clock::now() - begin).count();
  printf("pinned: %.3f s per GB\n", s / (double(kBytes) / 1e9));
  const Block to = allocate_pinned(kGpu, kBytes), device = allocator_of(kGpu)(kBytes);
  for (size_t i = 0; i < kBytes; i += 4093) from.data[i] = std::byte(i * 7);
  from.data[kBytes - 1] = std::byte(99);
  const Stream gpu = gpu_stream("gpu");
  copy_async(gpu, device.data, from.data, kBytes);
  copy_async(gpu, to.data, device.data, kBytes);
  gpu.synchronize();
  EXPECT_EQ(std::memcmp(from.data, to.data, kBytes), 0);
  for (const Block* block : {&from, &to, &device}) block->release(block->data);
}

}  // namespace
}  // namespace zeno::cuda_tests
