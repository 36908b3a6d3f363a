#include "zeno/nn/rope_table.h"

#include "zeno/device/copy.h"

namespace zeno::nn {

RopeTable::RopeTable(int64_t positions, int64_t head_dim, double theta, const RopeScaling& scaling)
    : positions_(positions), head_dim_(head_dim), values_(size_t(positions * head_dim)) {
  require(positions > 0, ErrorKind::data, "[rope] positions: got {}, expected at least 1; check config.json",
          positions);
  require(head_dim > 0 && head_dim % 2 == 0, ErrorKind::data,
          "[rope] head_dim: got {}, expected an even number; check config.json", head_dim);
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
