// Row-sparse reduction of an embedding's gradient: ranks exchange only the rows that their tokens touched,
// and each sums them in the same tree order as a dense reduction, so the bits are the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "zeno/comm/communicator.h"
#include "zeno/device/buffer.h"
#include "zeno/zero/units.h"

namespace zeno::zero {

class SparseRows {
 public:
  // `tokens` is the most tokens a rank sees in a step.
  SparseRows(const UnitTable& units, const Policy& policy, int ranks, int64_t tokens);

  bool active() const { return capacity_ > 0; }
  // What allocate() takes.
  size_t bytes() const { return (id_bytes() + row_bytes()) * size_t(ranks_ + 1); }
  void allocate(Ledger& ledger, const Allocator& allocator);

  // The distinct rows this rank's tokens touch in the coming step; returns how many.
  int64_t set_rows(std::span<const int32_t> tokens);
  // How many rows each rank touches.
  void set_counts(std::vector<int64_t> counts);

  // Sums `table` (a [V, C] gradient, zero outside touched rows) over ranks.
  void reduce(StreamRef stream, comm::Communicator& comm, Tensor table, std::string_view unit);

 private:
  size_t id_bytes() const { return size_t(capacity_) * sizeof(int32_t); }
  size_t row_bytes() const { return size_t(capacity_ * cols_) * size_of(dtype_); }

  int ranks_;
  DType dtype_;
  int64_t capacity_ = 0, cols_ = 0;  // rows a rank may send, width of a row
  int64_t most_ = 0;                 // rows of the rank that has most
  std::vector<int64_t> counts_;
  std::vector<int32_t> rows_;
  Buffer buffer_;  // own ids, all ids, own rows, all rows
};

}  // namespace zeno::zero
