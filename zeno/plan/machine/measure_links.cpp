#include "zeno/plan/machine/measure_links.h"

#include <algorithm>
#include <chrono>

#include "zeno/base/rng.h"
#include "zeno/comm/cost.h"
#include "zeno/comm/world.h"
#include "zeno/device/copy.h"

namespace zeno::plan {
namespace {

// A vector of all ranks and slices of it, in memory that the others can read.
class RankLinks {
 public:
  RankLinks(comm::World& world, Device device, size_t bytes)
      : world_(world),
        comm_(world.communicator("measure", device)),
        slice_(int64_t(bytes / sizeof(float)) / world.size()),
        stream_({.device = device, .name = "measure", .rank = world.rank()}) {
    std::vector<float> values(static_cast<size_t>(slice_));
    for (size_t i = 0; i < values.size(); ++i) values[i] = random_uniform(1, uint64_t(world.rank()), i);
    const auto make = [&](int slices) {
      const size_t size = values.size() * sizeof(float);
      ledger_.book(Tier::device, Purpose::workspace, size_t(slices) * size);
      Buffer buffer(ledger_, Tier::device, Purpose::workspace, size_t(slices) * size,
                    world.allocator(device));
      for (int s = 0; s < slices; ++s)
        copy_async(stream_, buffer.data() + size_t(s) * size,
                   reinterpret_cast<const std::byte*>(values.data()), size);
      return buffer;
    };
    whole_ = make(world.size());
    mine_ = make(1);
    sum_ = make(1);
    stream_.synchronize();
  }

  // Seconds of a reduce-scatter and an all-gather of `count` elements for each rank: the median.
  double seconds(int64_t count, int calls) {
    constexpr int kRounds = 9;
    std::vector<double> times;
    for (int round = 0; round <= kRounds; ++round) {
      world_.exchange("start");
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < calls; ++i) call(count);
      stream_.synchronize();
      comm_->poll();
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
      if (round > 0) times.push_back(time.count() / calls);  // the first warms up
    }
    std::ranges::sort(times);
    return times[kRounds / 2];
  }
  int64_t slice() const { return slice_; }

 private:
  void call(int64_t count) {
    const comm::Part scatter{whole_.data(), sum_.data(), count}, gather{mine_.data(), whole_.data(), count};
    comm_->reduce_scatter(stream_, {&scatter, 1}, DType::f32, DType::f32, false, "measure");
    comm_->all_gather(stream_, {&gather, 1}, DType::f32, "measure");
  }

  comm::World& world_;
  std::unique_ptr<comm::Communicator> comm_;
  int64_t slice_;
  Ledger ledger_;
  Buffer whole_, mine_, sum_;
  Stream stream_;
};

}  // namespace

Link measure_inside(Device::Kind kind, int ranks, size_t bytes) {
  constexpr int64_t kFew = 64;
  Link link;
  comm::run_thread_ranks(ranks, {}, [&](comm::World& world) {
    const Device device{kind, kind == Device::Kind::cuda ? world.rank() : 0};
    RankLinks links(world, device, bytes);
    const double many = links.seconds(links.slice(), 4), few = links.seconds(kFew, 64);
    if (world.rank() > 0) return;
    const int64_t bytes_sent = comm::reduce_scatter_cost(ranks, links.slice(), DType::f32).bytes +
                               comm::all_gather_cost(ranks, links.slice(), DType::f32).bytes;
    link = {double(bytes_sent) / many, few / (2.0 * (ranks - 1))};
  });
  return link;
}

}  // namespace zeno::plan
