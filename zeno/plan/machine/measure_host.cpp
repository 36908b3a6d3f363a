#include "zeno/plan/machine/measure_host.h"

#include "zeno/base/rng.h"
#include "zeno/device/copy.h"
#include "zeno/kernels/moment_cells.h"

namespace zeno::plan {
namespace {

void fill_random(Tensor tensor) {
  dispatch_float(tensor.dtype, [&]<class T>() {
    for (int64_t i = 0; i < tensor.count(); ++i)
      tensor.as<T>()[i] = T(random_uniform(1, 0, uint64_t(i)) - 0.5f);
  });
}

}  // namespace

size_t update_bytes(DType dtype, int64_t count) {
  return dtype == DType::u8 ? moment_bytes(count) : size_t(count) * size_of(dtype);
}

HostUpdates::HostUpdates(Device near, int threads, const zero::Policy& policy, int64_t count)
    : stream_({.device = {}, .name = "updates", .threads = threads, .near = near}) {
  const auto make = [&](DType dtype) {
    const size_t bytes = update_bytes(dtype, count);
    ledger_.book(Tier::host, Purpose::workspace, bytes);
    buffers_.emplace_back(ledger_, Tier::host, Purpose::workspace, bytes);
    fill_zero_async(stream_, buffers_.back().data(), bytes);
    bytes_ += double(bytes);
    return Tensor(buffers_.back().data(), dtype, 1, count);
  };
  const DType moments = policy.moments.value_or(policy.states);
  // Beside the parameters of a CPU's own runs; those of a GPU are elsewhere.
  const bool split = near.kind == Device::Kind::cpu && policy.splits_masters();
  op_.grad = make(policy.grad);
  op_.master = make(split ? DType::i16 : policy.states);
  if (policy.moments_first) op_.m = make(moments);
  if (policy.moments_second) op_.v = make(moments);
  if (policy.compute != policy.states) op_.param = make(policy.compute);
  op_.grad_factor = &factor_;
  if (!policy.moments_second) op_.hyper.kind = OptimizerHyper::Kind::sgd;
  stream_.synchronize();
  fill_random(op_.grad);  // the states follow from it
  run();
}

void HostUpdates::run() {
  optimizer_update(stream_, op_);
  stream_.synchronize();
}

LinkCopies::LinkCopies(Device device, size_t bytes)
    : up_({.device = device, .name = "up"}), down_({.device = device, .name = "down"}) {
  for (Tier tier : {Tier::device, Tier::device, Tier::host, Tier::host}) {
    ledger_.book(tier, Purpose::workspace, bytes);
    const Allocator pinned = [device](size_t size) { return allocate_pinned(device, size); };
    buffers_.emplace_back(ledger_, tier, Purpose::workspace, bytes,
                          tier == Tier::device ? allocator_of(device) : pinned);
  }
  fill_random(Tensor(buffers_[2].data(), DType::f32, 1, int64_t(bytes / sizeof(float))));
  copy_async(up_, buffers_[1].data(), buffers_[2].data(), bytes);
  wait();
  queue();
  wait();
}

void LinkCopies::queue() {
  copy_async(up_, buffers_[0].data(), buffers_[2].data(), bytes());
  copy_async(down_, buffers_[3].data(), buffers_[1].data(), bytes());
  up_done_.record(up_);
  down_done_.record(down_);
}

void LinkCopies::wait() const {
  up_.synchronize();
  down_.synchronize();
}

}  // namespace zeno::plan
