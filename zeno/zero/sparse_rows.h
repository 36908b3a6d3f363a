// Row-sparse reduction of an embedding's gradient: ranks exchange only the rows that their tokens touched,
// and each rank sums them in the tree order of a dense reduction, so the bits are the same.
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
  // `tokens` is the largest number of tokens that a rank sees in a step.
  SparseRows(const UnitTable& units, const Policy& policy, int ranks, int64_t tokens);

  bool active() const { return capacity_ > 0; }
  // What allocate() takes.
  size_t bytes() const { return (id_bytes() + row_bytes()) * size_t(ranks_ + 1); }
  void allocate(Ledger& ledger, const Allocator& allocator);

  // Sets the rows that this rank's tokens touch in the coming step; returns the number of distinct rows.
  int64_t set_rows(std::span<const int32_t> tokens);
  // Sets how many rows each rank touches.
  void set_counts(std::vector<int64_t> counts);

  // Sums `table` (a [V, C] gradient, zero outside touched rows) over ranks.
  void reduce(StreamRef stream, comm::Communicator& comm, Tensor table, std::string_view unit);

 private:
  size_t id_bytes() const { return size_t(capacity_) * sizeof(int32_t); }
  size_t row_bytes() const { return size_t(capacity_ * cols_) * size_of(dtype_); }

  int ranks_;
  DType dtype_;
  int64_t capacity_ = 0, cols_ = 0;  // rows a rank may send, width of a row
  int64_t most_ = 0;                 // the most rows of any rank
  std::vector<int64_t> counts_;
  std::vector<int32_t> rows_;
  Buffer buffer_;  // own ids, all ids, own rows, all rows
};

}  // namespace zeno::zero
