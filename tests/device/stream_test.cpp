#include "zeno/device/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/device/copy.h"
#include "zeno/device/stream_impl.h"

namespace zeno {
namespace {

using namespace std::chrono_literals;

TEST(Stream, RunsInOrder) {
  Stream stream({.name = "s"});
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) stream.ref().launch([&order, i](Workers&) { order.push_back(i); });
  stream.synchronize();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[size_t(i)], i);
}

TEST(Stream, LaunchDoesNotBlock) {
  Stream stream({.name = "s"});
  std::atomic<bool> go{false};
  stream.ref().launch([&](Workers&) {
    while (!go) std::this_thread::sleep_for(1ms);
  });
  Event event;
  event.record(stream);
  EXPECT_FALSE(event.done());
  go = true;
  event.synchronize();
  EXPECT_TRUE(event.done());
}

// Two streams really run side by side: each waits for the other inside a task.
TEST(Stream, StreamsOverlap) {
  Stream a({.name = "a"}), b({.name = "b"});
  std::atomic<int> arrived{0};
  const auto meet = [&](Workers&) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  };
  a.ref().launch(meet);
  b.ref().launch(meet);
  a.synchronize();
  b.synchronize();
  EXPECT_EQ(arrived, 2);
}

TEST(Event, OrdersWorkBetweenStreams) {
  Stream producer({.name = "p"}), consumer({.name = "c"});
  for (int round = 0; round < 50; ++round) {
    int value = 0, seen = -1;
    Event event;
    producer.ref().launch([&](Workers&) {
      std::this_thread::sleep_for(100us);
      value = 7;
    });
    event.record(producer);
    consumer.ref().wait(event);
    consumer.ref().launch([&](Workers&) { seen = value; });
    consumer.synchronize();
    EXPECT_EQ(seen, 7);
  }
}

TEST(Event, NeverRecordedCountsAsDone) {
  Stream stream({.name = "s"});
  const Event event;
  stream.ref().wait(event);
  stream.synchronize();
  EXPECT_TRUE(event.done());
}

// A wait refers to the record before it, whatever is recorded later.
TEST(Event, RecordingAgainDoesNotMoveAnEarlierWait) {
  Stream slow({.name = "slow"}), waiter({.name = "waiter"});
  std::atomic<bool> go{false};
  Event event;
  event.record(slow);
  waiter.ref().wait(event);
  slow.ref().launch([&](Workers&) {
    while (!go) std::this_thread::yield();
  });
  event.record(slow);
  waiter.synchronize();  // would hang if it waited for the second record
  go = true;
  slow.synchronize();
}

TEST(Stream, ErrorsAreKeptSkipLaterWorkAndTravelThroughEvents) {
  Stream a({.name = "a"}), b({.name = "b"});
  bool ran = false;
  Event event;
  a.ref().launch([](Workers&) { fail(ErrorKind::data, "boom"); });
  a.ref().launch([&](Workers&) { ran = true; });
  event.record(a);
  b.ref().wait(event);
  b.ref().launch([&](Workers&) { ran = true; });
  EXPECT_THROW(a.synchronize(), Error);
  EXPECT_THROW(b.synchronize(), Error);
  EXPECT_FALSE(ran);
  a.reset_error();
  a.ref().launch([&](Workers&) { ran = true; });
  a.synchronize();
  EXPECT_TRUE(ran);
}

// A device whose records are reached when the test says so.
struct FakeMark final : DeviceMark {
  std::shared_ptr<std::atomic<bool>> reached = std::make_shared<std::atomic<bool>>(false);
  bool fails = false;

  bool done() const override { return *reached; }
  void synchronize() const override {}
  std::function<bool()> probe() const override {
    return [reached = reached, fails = fails] {
      if (fails) fail(ErrorKind::internal, "the device failed");
      return reached->load();
    };
  }
};

TEST(Event, CpuStreamWaitsForTheDeviceRecordItSaw) {
  const auto stream = make_cpu_stream({.name = "s"});
  const auto event = std::make_shared<Event::State>();
  const auto first = std::make_shared<FakeMark>(), second = std::make_shared<FakeMark>();
  std::atomic<int> passed{0};
  event->mark = first;
  stream->wait(event);
  stream->launch([&](Workers&) { ++passed; });
  event->mark = second;  // recorded again before the wait is over
  std::this_thread::sleep_for(2ms);
  EXPECT_EQ(passed, 0);
  *first->reached = true;
  stream->synchronize();
  EXPECT_EQ(passed, 1);
  stream->wait(event);
  *second->reached = true;
  stream->synchronize();
}

TEST(Event, DeviceFailureBecomesAnErrorOfTheCpuStream) {
  const auto stream = make_cpu_stream({.name = "s"});
  const auto event = std::make_shared<Event::State>(), after = std::make_shared<Event::State>();
  const auto mark = std::make_shared<FakeMark>();
  mark->fails = true;
  event->mark = mark;
  bool ran = false;
  stream->wait(event);
  stream->launch([&](Workers&) { ran = true; });
  stream->record(after);
  EXPECT_THROW(stream->synchronize(), Error);
  EXPECT_FALSE(ran);
  EXPECT_TRUE(after->await(1));
}

// What a GPU polls: written at every record, in order, whatever the tasks did.
TEST(Event, CounterForDevicesIsWrittenAlsoWhenTasksFail) {
  std::atomic<uint64_t> counter{0};
  const auto stream = make_cpu_stream({.name = "s"});
  const auto event = std::make_shared<Event::State>();
  stream->record(event);
  stream->synchronize();
  {
    const std::scoped_lock lock(event->progress->mutex);
    event->progress->counter = &counter;
  }
  std::atomic<bool> go{false};
  stream->launch([&](Workers&) {
    while (!go) std::this_thread::yield();
    fail(ErrorKind::data, "boom");
  });
  stream->record(event);
  const uint64_t failed = event->record;
  stream->launch([](Workers&) {});
  stream->record(event);
  EXPECT_EQ(failed, 2u);
  EXPECT_EQ(event->record, 3u);
  EXPECT_EQ(counter, 0u);
  go = true;
  EXPECT_THROW(stream->synchronize(), Error);
  EXPECT_EQ(counter, 3u);
  EXPECT_THROW(event->progress->rethrow(), Error);
  stream->reset_error();
  stream->synchronize();
  EXPECT_NO_THROW(event->progress->rethrow());
}

TEST(Event, RecordsOfSeveralThreadsAreCountedInTheOrderOfTheQueue) {
  std::atomic<uint64_t> counter{0};
  const auto stream = make_cpu_stream({.name = "s"});
  const auto first = std::make_shared<Event::State>();
  stream->record(first);
  stream->synchronize();
  first->progress->counter = &counter;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) stream->record(std::make_shared<Event::State>());
    });
  }
  uint64_t last = 0;
  while (last < 2001) {
    const uint64_t now = counter;
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(Workers, LoopsCoverEveryIndexOnce) {
  for (int threads : {1, 2, 3, 8}) {
    Workers workers(threads);
    for (int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
      workers.for_each(count, [&](int64_t i, int thread) {
        EXPECT_LT(thread, threads);
        ++hits[size_t(i)];
      });
      for (const auto& hit : hits) EXPECT_EQ(hit, 1);
      std::atomic<int64_t> sum{0};
      workers.for_ranges(count, 3, [&](int64_t begin, int64_t end, int) {
        EXPECT_LE(end - begin, 3);
        sum += end - begin;
      });
      EXPECT_EQ(sum, count);
    }
  }
}

TEST(Workers, FirstErrorIsRethrownAndTheTeamSurvives) {
  Workers workers(3);
  EXPECT_THROW(workers.for_each(100,
                                [](int64_t i, int) {
                                  if (i == 42) fail(ErrorKind::internal, "42");
                                }),
               Error);
  std::atomic<int> count{0};
  workers.for_each(10, [&](int64_t, int) { ++count; });
  EXPECT_EQ(count, 10);
}

TEST(Copy, MovesAndClearsBytes) {
  Stream stream({.name = "s", .threads = 2});
  std::vector<std::byte> from(9'000'001), to(from.size());
  for (size_t i = 0; i < from.size(); ++i) from[i] = std::byte(i * 31);
  copy_async(stream, to.data(), from.data(), from.size());
  stream.synchronize();
  EXPECT_EQ(from, to);
  fill_zero_async(stream, to.data() + 1, to.size() - 2);
  stream.synchronize();
  EXPECT_EQ(to.front(), from.front());
  EXPECT_EQ(to.back(), from.back());
  EXPECT_EQ(std::count(to.begin(), to.end(), std::byte(0)) >= int64_t(to.size()) - 2, true);
}

}  // namespace
}  // namespace zeno
