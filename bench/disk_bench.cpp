// DiskStore against the disk's own rates, measured in the same run: plain reads and writes of 16 MiB past the
// page cache, in order, by one thread and by four; the better of them is the limit.
//   disk_bench [--folder DIR ...] [--extents 12] [--extent-mb 64] [--rounds 5] [--request-kb N] [--depth N]
// Every way runs once per round, in turning order, because rates of disks wander; medians are printed.
#include <CLI/CLI.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/base/rng.h"
#include "zeno/device/buffer.h"
#include "zeno/device/disk_store.h"

using namespace zeno;

namespace {

constexpr size_t kRawBlock = size_t(16) << 20;
// Memory that plain transfers go through in turn: blocks that stay in the CPU's cache would be moved faster.
constexpr size_t kRawMemory = 4 * kRawBlock;

struct Options {
  std::vector<std::string> folders{"/tmp"};
  int extents = 12;  // an even number: half are read while the others are written
  int rounds = 5, depth = DiskOptions{}.depth;
  size_t extent_mb = 64, request_kb = DiskOptions{}.request_bytes >> 10;
  size_t extent_bytes() const { return extent_mb * 1000 * 1000 / kDirectAlign * kDirectAlign; }
};

struct FreeBlock {
  void operator()(std::byte* p) const { std::free(p); }
};
using Memory = std::unique_ptr<std::byte, FreeBlock>;

Memory random_memory(size_t bytes, uint64_t seed) {
  Memory memory(allocate_host(bytes).data);
  auto* words = reinterpret_cast<uint64_t*>(memory.get());
  for (size_t i = 0; i < bytes / 8; ++i) words[i] = random_bits(seed, 0, i);
  return memory;
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](timeval t) { return double(t.tv_sec) + double(t.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// One way to move bytes, and what it reached.
struct Way {
  std::string name;
  enum Kind { read, write, both } kind;
  bool limit;
  double gigabytes;
  std::function<void()> run;
  std::vector<double> rates = {}, cpu = {};  // GB/s, CPU seconds per GB

  void measure() {
    const double cpu_before = cpu_seconds();
    const auto start = std::chrono::steady_clock::now();
    run();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    rates.push_back(gigabytes / seconds);
    cpu.push_back((cpu_seconds() - cpu_before) / gigabytes);
  }
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Files of the same size as the store's, one per folder, moved by threads that take blocks in turn.
class RawFiles {
 public:
  explicit RawFiles(const Options& o) {
    blocks_ = size_t(o.extents) * o.extent_bytes() / kRawBlock;
    for (const std::string& folder : o.folders) {
      paths_.push_back(Path(folder) / "zeno-disk-bench.raw");
      fds_.push_back(::open(paths_.back().c_str(), O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600));
      require(fds_.back() >= 0, ErrorKind::io, "[bench] cannot open {} past the page cache",
              paths_.back().string());
    }
    for (int t = 0; t < kMaxThreads; ++t) memory_.push_back(random_memory(kRawMemory, uint64_t(t)));
    move(true, 0, blocks_, 0, 1);
  }
  ~RawFiles() {
    for (const int fd : fds_) ::close(fd);
    for (const Path& path : paths_) remove_file(path);
  }
  double gigabytes() const { return double(blocks_ * kRawBlock) / 1e9; }

  void all(bool write, int threads) {
    run(threads, [&](int t) { move(write, 0, blocks_, t, threads); });
  }
  // The first half is read while the second is written.
  void both(int threads) {
    run(2 * threads, [&](int t) {
      const bool write = t >= threads;
      move(write, write ? blocks_ / 2 : 0, write ? blocks_ : blocks_ / 2, t, threads);
    });
  }

 private:
  static constexpr int kMaxThreads = 4;

  void run(int threads, const std::function<void(int)>& work) {
    std::vector<std::jthread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
    work(0);
  }
  void move(bool write, size_t begin, size_t end, int thread, int threads) {
    for (size_t b = begin + size_t(thread % threads); b < end; b += size_t(threads)) {
      const int fd = fds_[b % fds_.size()];
      std::byte* data = memory_[size_t(thread)].get() + b / size_t(threads) * kRawBlock % kRawMemory;
      const auto at = off_t(b / fds_.size() * kRawBlock);
      const ssize_t n = write ? ::pwrite(fd, data, kRawBlock, at) : ::pread(fd, data, kRawBlock, at);
      require(n == ssize_t(kRawBlock), ErrorKind::io, "[bench] short transfer of the raw file");
    }
  }

  std::vector<Path> paths_;
  std::vector<int> fds_;
  std::vector<Memory> memory_;
  size_t blocks_ = 0;
};

// A store with two lanes, as training has.
class Store {
 public:
  Store(const Options& o, std::string name, bool verify, bool registered,
        std::function<std::unique_ptr<DiskQueue>(int)> make_queue)
      : o_(o),
        store_({.folders = {o.folders.begin(), o.folders.end()},
                .name = "bench-" + name,
                .verify = verify,
                .request_bytes = o.request_kb << 10,
                .depth = o.depth,
                .make_queue = std::move(make_queue)}),
        from_(random_memory(o.extent_bytes(), 1)),
        to_(random_memory(o.extent_bytes(), 2)) {
    for (int e = 0; e < o.extents; ++e) store_.add(o.extent_bytes(), "bench extent");
    store_.create();
    if (registered) {
      const bool done = store_.register_buffer({from_.get(), o.extent_bytes()}) &&
                        store_.register_buffer({to_.get(), o.extent_bytes()});
      if (!done) fmt::print("buffers are not registered: the limit of locked memory is too low\n");
    }
    write(0, o.extents);
  }
  void read(int begin, int end) {
    for (int e = begin; e < end; ++e) store_.read(e, {to_.get(), o_.extent_bytes()});
  }
  void write(int begin, int end) {
    for (int e = begin; e < end; ++e) store_.write(e, {from_.get(), o_.extent_bytes()});
  }
  void both() {
    const std::jthread writer([&] { write(o_.extents / 2, o_.extents); });
    read(0, o_.extents / 2);
  }

 private:
  const Options& o_;
  DiskStore store_;
  Memory from_, to_;
};

void print(const std::vector<Way>& ways, Way::Kind kind, const char* title) {
  double limit = 0;
  for (const Way& way : ways) {
    if (way.kind == kind && way.limit) limit = std::max(limit, median(way.rates));
  }
  for (const Way& way : ways) {
    if (way.kind != kind) continue;
    fmt::print("{:5} {:32} {:6.3f} GB/s [{:.2f}-{:.2f}]  {:4.2f} of the limit  {:.3f} CPU s/GB\n", title,
               way.name, median(way.rates), std::ranges::min(way.rates), std::ranges::max(way.rates),
               median(way.rates) / limit, median(way.cpu));
  }
}

void run(const Options& o) {
  RawFiles raw(o);
  std::vector<std::unique_ptr<Store>> stores;
  std::vector<Way> ways;
  for (const int threads : {1, 4}) {
    const std::string name = fmt::format("plain, 16 MiB, {} threads", threads);
    ways.push_back({name, Way::read, true, raw.gigabytes(), [&raw, threads] { raw.all(false, threads); }});
    ways.push_back({name, Way::write, true, raw.gigabytes(), [&raw, threads] { raw.all(true, threads); }});
    const int each = threads == 1 ? 1 : 2;
    ways.push_back({fmt::format("plain, 16 MiB, {0} + {0} threads", each), Way::both, true, raw.gigabytes(),
                    [&raw, each] { raw.both(each); }});
  }
  const double gigabytes = double(o.extents) * double(o.extent_bytes()) / 1e9;
  const auto add = [&](std::string name, bool verify, bool registered, auto make_queue) {
    stores.push_back(
        std::make_unique<Store>(o, fmt::format("{}", stores.size()), verify, registered, make_queue));
    Store& store = *stores.back();
    ways.push_back({name, Way::read, false, gigabytes, [&store, n = o.extents] { store.read(0, n); }});
    ways.push_back({name, Way::write, false, gigabytes, [&store, n = o.extents] { store.write(0, n); }});
    ways.push_back({name, Way::both, false, gigabytes, [&store] { store.both(); }});
  };
  if (make_uring_queue(1)) {
    add("io_uring, checksums", true, true, make_uring_queue);
    add("io_uring", false, true, make_uring_queue);
    add("io_uring, memory not registered", false, false, make_uring_queue);
  }
  add("threads, checksums", true, false, make_thread_queue);
  add("threads", false, false, make_thread_queue);
  for (int round = 0; round < o.rounds; ++round) {
    for (size_t w = 0; w < ways.size(); ++w) {
      ways[round % 2 == 0 ? w : ways.size() - 1 - w].measure();
    }
  }
  fmt::print("{} extents of {} MB, requests of {} KiB, {} in flight each way, medians of {} rounds\n",
             o.extents, o.extent_mb, o.request_kb, o.depth, o.rounds);
  print(ways, Way::read, "read");
  print(ways, Way::write, "write");
  print(ways, Way::both, "both");
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("state on disk against the disk's own rates");
  app.add_option("--folder", o.folders);
  app.add_option("--extents", o.extents);
  app.add_option("--extent-mb", o.extent_mb);
  app.add_option("--rounds", o.rounds);
  app.add_option("--request-kb", o.request_kb);
  app.add_option("--depth", o.depth);
  CLI11_PARSE(app, argc, argv);
  run(o);
}
