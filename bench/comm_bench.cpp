// Collectives between ranks of this machine against what its memory allows, and against MPI's own.
//   comm_bench [RANKS...]                               ranks as threads (2 and 4 when none are given)
//   mpirun --mca pml ob1 -n 2 comm_bench --mpi          ranks as processes, beside MPI's collectives in the
//   same run
//
// Bus bandwidth as nccl-tests counts it, S = bytes of the whole fp32 vector, n ranks: S (n-1)/n per second
// for reduce-scatter and all-gather, twice that for all-reduce. Not in place, except the second all-gather:
// as stages 1 and 2 gather parameters, each rank's part already lying in the result. The best of many calls,
// as STREAM does it. Memory limit, measured in the same run with all cores: `copy` in bytes copied per second
// (the better of memcpy and streaming stores), `triad` (a = b + c, streaming stores) in bytes read and
// written per second. A collective touches, over all ranks: reduce-scatter (n+1) S at the speed of triad;
// all-gather n S copied, in place (n-1) S; all-reduce (n+1) S at triad and (n-1) S copied. "limit" is the bus
// bandwidth at those speeds. Vectors that fit the last-level cache can beat it.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "mpi_collectives.h"
#include "zeno/base/host.h"
#include "zeno/comm/reduce_tree.h"
#include "zeno/comm/world.h"

namespace zeno::bench {
namespace {

using comm::World;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double best(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

struct Memory {
  std::byte* data = nullptr;
  std::function<void(std::byte*)> release;
  Memory(const Allocator& allocator, size_t bytes) {
    Block block = allocator(bytes);
    data = block.data;
    release = std::move(block.release);
    std::memset(data, 0, bytes);
  }
  ~Memory() { release(data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  float* floats() const { return reinterpret_cast<float*>(data); }
};

struct MemoryLimit {
  double copy = 0, triad = 0;  // bytes per second
};

// Arrays of `bytes` each, cut over all cores.
MemoryLimit measure_memory(size_t bytes) {
  const int times = bytes >= (size_t(64) << 20) ? 11 : 101;
  Workers workers(available_cores());
  const Memory a(allocate_host, bytes), b(allocate_host, bytes), c(allocate_host, bytes);
  const int64_t count = int64_t(bytes / 4), grain = std::max<int64_t>(count / workers.threads(), 1);
  std::vector<double> copies, triads;
  const auto time = [&](std::vector<double>& into, const auto& body) {
    const double begin = now();
    workers.for_ranges(count, grain, [&](int64_t from, int64_t to, int) { body(from, to - from); });
    into.push_back(now() - begin);
  };
  for (int i = 0; i < times; ++i) {
    for (const bool streaming : {false, true}) {
      time(copies, [&](int64_t at, int64_t n) {
        comm::bulk_copy(a.data + at * 4, b.data + at * 4, size_t(n) * 4, streaming);
      });
      time(triads, [&](int64_t at, int64_t n) {
        const std::array<const std::byte*, 2> inputs{b.data + at * 4, c.data + at * 4};
        comm::tree_sum({.out = a.data + at * 4, .streaming = streaming}, inputs, n);
      });
    }
  }
  return {double(bytes) / best(copies), 3.0 * double(bytes) / best(triads)};
}

// Seconds of one call when several are queued (as a training step queues them): the best of many rounds. All
// ranks start a round together.
template <class Call, class Wait>
double time_calls(World& world, size_t bytes, const Call& call, const Wait& wait) {
  const bool large = bytes >= (size_t(64) << 20);
  const int rounds = large ? 11 : 31, calls = large ? 1 : 8;
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) {
    world.exchange("start");
    const double begin = now();
    for (int k = 0; k < calls; ++k) call();
    wait();
    seconds.push_back((now() - begin) / calls);
  }
  return best(seconds);
}

struct Times {
  double reduce_scatter = 0, all_gather = 0, all_gather_in_place = 0, all_reduce = 0;
};

Times measure_ours(World& world, comm::Communicator& comm, const Stream& stream, size_t bytes,
                   const Memory& full, const Memory& full2, const Memory& shard) {
  const int64_t count = int64_t(bytes / 4), slice = count / world.size();
  const comm::Part scatter{full.data, shard.data, slice}, gather{shard.data, full2.data, slice},
      reduce{full.data, full2.data, count};
  const auto wait = [&] { stream.synchronize(); };
  Times times;
  times.reduce_scatter = time_calls(
      world, bytes,
      [&] {
        comm.reduce_scatter(stream, {&scatter, 1}, DType::f32, DType::f32, false, "bench");
      },
      wait);
  times.all_gather = time_calls(
      world, bytes,
      [&] {
        comm.all_gather(stream, {&gather, 1}, DType::f32, "bench");
      },
      wait);
  const comm::Part in_place{full2.data + size_t(world.rank() * slice) * 4, full2.data, slice};
  times.all_gather_in_place = time_calls(
      world, bytes,
      [&] {
        comm.all_gather(stream, {&in_place, 1}, DType::f32, "bench");
      },
      wait);
  times.all_reduce = time_calls(
      world, bytes,
      [&] {
        comm.all_reduce(stream, {&reduce, 1}, DType::f32, "bench");
      },
      wait);
  return times;
}

Times measure_mpi(World& world, size_t bytes, const Memory& full, const Memory& full2, const Memory& shard) {
  const int64_t count = int64_t(bytes / 4), slice = count / world.size();
  const auto wait = [] {};
  Times times;
  const double plain = time_calls(
      world, bytes, [&] { mpi_reduce_scatter(full.floats(), shard.floats(), slice, world.size()); }, wait);
  const double block = time_calls(
      world, bytes, [&] { mpi_reduce_scatter_block(full.floats(), shard.floats(), slice); }, wait);
  times.reduce_scatter = std::min(plain, block);
  times.all_gather = time_calls(
      world, bytes, [&] { mpi_all_gather(shard.floats(), full2.floats(), slice); }, wait);
  times.all_gather_in_place = time_calls(
      world, bytes, [&] { mpi_all_gather_in_place(full2.floats(), slice); }, wait);
  times.all_reduce = time_calls(
      world, bytes, [&] { mpi_all_reduce(full.floats(), full2.floats(), count); }, wait);
  return times;
}

void print_line(const char* op, int n, size_t bytes, double bus_bytes, double seconds, double limit_seconds,
                double mpi_seconds) {
  const std::string beside = mpi_seconds == 0
                                 ? ""
                                 : fmt::format("   MPI {:7.2f} GB/s   {:5.1f}x",
                                               bus_bytes / mpi_seconds / 1e9, mpi_seconds / seconds);
  fmt::print("{:>2} ranks  {:<14} {:>4} MB   {:7.2f} GB/s   limit {:6.2f}   ratio {:4.2f}{}\n", n, op,
             bytes >> 20, bus_bytes / seconds / 1e9, bus_bytes / limit_seconds / 1e9, limit_seconds / seconds,
             beside);
}

void report(int n, size_t bytes, const Times& ours, const Times& mpi, const MemoryLimit& limit) {
  const double s = double(bytes), bus = s * (n - 1) / n;
  const double sum = (n + 1) * s / limit.triad;
  print_line("reduce_scatter", n, bytes, bus, ours.reduce_scatter, sum, mpi.reduce_scatter);
  print_line("all_gather", n, bytes, bus, ours.all_gather, n * s / limit.copy, mpi.all_gather);
  print_line("  in place", n, bytes, bus, ours.all_gather_in_place, (n - 1) * s / limit.copy,
             mpi.all_gather_in_place);
  print_line("all_reduce", n, bytes, 2 * bus, ours.all_reduce, sum + (n - 1) * s / limit.copy,
             mpi.all_reduce);
  std::fflush(stdout);
}

// `with_mpi`: measure MPI's collectives too, on private memory as MPI programs have it.
void bench_rank(World& world, bool with_mpi) {
  const auto comm = world.communicator("bench");
  const int threads = std::max(1, available_cores() / world.size());
  const Stream stream({.device = {}, .name = "bench", .rank = world.rank(), .threads = threads});
  for (const size_t bytes : {size_t(1) << 20, size_t(16) << 20, size_t(256) << 20}) {
    MemoryLimit limit;
    if (world.rank() == 0) {
      limit = measure_memory(bytes);
      fmt::print(
          "memory, {} MB arrays, {} cores: copy {:.1f} GB/s copied, triad {:.1f} GB/s read and written\n",
          bytes >> 20, available_cores(), limit.copy / 1e9, limit.triad / 1e9);
    }
    world.exchange("measured");
    Times ours, mpi;
    {
      const Allocator shared = world.allocator();
      const Memory full(shared, bytes), full2(shared, bytes), shard(shared, bytes / size_t(world.size()));
      ours = measure_ours(world, *comm, stream, bytes, full, full2, shard);
    }
    if (with_mpi) {
      const Memory full(allocate_host, bytes), full2(allocate_host, bytes);
      const Memory shard(allocate_host, bytes / size_t(world.size()));
      mpi = measure_mpi(world, bytes, full, full2, shard);
    }
    if (world.rank() == 0) report(world.size(), bytes, ours, mpi, limit);
  }
}

}  // namespace
}  // namespace zeno::bench

int main(int argc, char** argv) {
  using namespace zeno;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments == std::vector<std::string>{"--mpi"}) {
      comm::run_mpi_rank({}, [](comm::World& world) { bench::bench_rank(world, true); });
      return 0;
    }
    std::vector<int> sizes;
    for (const std::string& argument : arguments) sizes.push_back(std::stoi(argument));
    if (sizes.empty()) sizes = {2, 4};
    for (const int ranks : sizes) {
      comm::run_thread_ranks(ranks, {}, [](comm::World& world) { bench::bench_rank(world, false); });
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "comm_bench: {}\n", error.what());
    return 1;
  }
}
