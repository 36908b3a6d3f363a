#include "zeno/nn/rope_table.h"

namespace zeno::nn {

RopeTable::RopeTable(int64_t positions, int64_t head_dim, double theta, const RopeScaling& scaling)
    : positions_(positions), head_dim_(head_dim), values_(size_t(positions * head_dim)) {
  require(positions > 0, ErrorKind::data, "[rope] positions: got {}, expected at least 1; check config.json",
          positions);
  require(head_dim > 0 && head_dim % 2 == 0, ErrorKind::data,
          "[rope] head_dim: got {}, expected an even number; check config.json", head_dim);
  rope_table(view(), rope_frequencies(head_dim, theta, scaling));
}

Tensor RopeTable::view() const {
  // Views carry no constness; the table is only read after construction.
  return {const_cast<float*>(values_.data()), DType::f32, positions_, head_dim_};
}

}  // namespace zeno::nn
