#include "zeno/nn/rope_table.h"

#include <new>

#include "zeno/base/error.h"
#include "zeno/base/host.h"
#include "zeno/device/copy.h"
#include "zeno/device/ledger.h"

namespace zeno::nn {

namespace {

std::vector<float> make_values(int64_t positions, int64_t head_dim) {
  require(positions > 0, ErrorKind::data, "[rope] positions: got {}, expected at least 1; check config.json",
          positions);
  require(head_dim > 0 && head_dim % 2 == 0, ErrorKind::data,
          "[rope] head_dim: got {}, expected an even number; check config.json", head_dim);
  // Comes before memory is planned, and a sequence length may be anything.
  const size_t count = size_t(positions) * size_t(head_dim), bytes = count * sizeof(float);
  try {
    if (bytes <= available_host_memory()) return std::vector<float>(count);
  } catch (const std::bad_alloc&) {
  }
  throw Error(ErrorKind::memory, fmt::format("[rope] {} positions take {} of host memory, more than is free; "
                                             "use shorter sequences (--seq-len)",
                                             positions, format_bytes(bytes)));
}

}  // namespace

RopeTable::RopeTable(int64_t positions, int64_t head_dim, double theta, const RopeScaling& scaling)
    : positions_(positions), head_dim_(head_dim), values_(make_values(positions, head_dim)) {
  rope_table(host_view(), rope_frequencies(head_dim, theta, scaling));
}

RopeTable::~RopeTable() {
  for (const auto& [device, block] : copies_) block.release(block.data);
}

Tensor RopeTable::host_view() const {
  // Views carry no constness; the table is only read after construction.
  return {const_cast<float*>(values_.data()), DType::f32, positions_, head_dim_};
}

Tensor RopeTable::view(StreamRef stream) const {
  Tensor table = host_view();
  const Device device = stream.device();
  if (device.kind == Device::Kind::cpu) return table;
  const std::scoped_lock lock(mutex_);
  auto copy = copies_.find(device.index);
  if (copy == copies_.end()) {
    copy = copies_.emplace(device.index, allocator_of(device)(table.bytes())).first;
    copy_async(stream, copy->second.data, table.data, table.bytes());
    stream.synchronize();
  }
  table.data = copy->second.data;
  return table;
}

}  // namespace zeno::nn
