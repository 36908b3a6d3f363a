#include "zeno/zero/sparse_rows.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "zeno/base/error.h"

namespace zeno::zero {
namespace {

// out = the tree sum of rows; a missing row counts as zeros, as it would in a dense sum.
template <class T>
void tree_sum(std::span<const T* const> rows, int64_t cols, std::vector<float>& out) {
  if (rows.size() == 1) {
    for (int64_t c = 0; c < cols; ++c) out[size_t(c)] = rows[0] != nullptr ? float(rows[0][c]) : 0.0f;
    return;
  }
  const size_t half = std::bit_floor(rows.size() - 1);
  tree_sum(rows.subspan(0, half), cols, out);
  std::vector<float> right(out.size());
  tree_sum(rows.subspan(half), cols, right);
  for (size_t c = 0; c < out.size(); ++c) out[c] += right[c];
}

// Walks the ranks' sorted row lists together and writes the sum of each row that any of them has.
template <class T>
void merge_rows(const int32_t* ids, const T* rows, const std::vector<int64_t>& counts, int64_t most,
                Tensor table) {
  const int64_t cols = table.cols;
  std::vector<int64_t> next(counts.size(), 0);
  std::vector<const T*> present(counts.size());
  std::vector<float> sum(static_cast<size_t>(cols));
  while (true) {
    int32_t row = std::numeric_limits<int32_t>::max();
    for (size_t r = 0; r < counts.size(); ++r) {
      if (next[r] < counts[r]) row = std::min(row, ids[int64_t(r) * most + next[r]]);
    }
    if (row == std::numeric_limits<int32_t>::max()) return;
    for (size_t r = 0; r < counts.size(); ++r) {
      const int64_t at = int64_t(r) * most + next[r];
      const bool has = next[r] < counts[r] && ids[at] == row;
      present[r] = has ? rows + at * cols : nullptr;
      next[r] += has;
    }
    tree_sum<T>(present, cols, sum);
    T* out = table.row<T>(row);
    for (int64_t c = 0; c < cols; ++c) out[c] = T(sum[size_t(c)]);
  }
}

}  // namespace

SparseRows::SparseRows(const UnitTable& units, const Policy& policy, int ranks, int64_t tokens)
    : ranks_(ranks), dtype_(policy.grad) {
  for (const Group& group : units.groups) {
    if (!group.sparse || !group.here) continue;
    ensure(capacity_ == 0 && group.layout.tensors().size() == 1, "[sparse] one sparse embedding per model");
    const FlatTensor& tensor = group.layout.tensors().front();
    capacity_ = std::min(tensor.rows, tokens);
    cols_ = tensor.cols;
  }
}

void SparseRows::allocate(Ledger& ledger, const Allocator& allocator) {
  buffer_ = Buffer(ledger, Tier::device, Purpose::staging, bytes(), allocator);
}

int64_t SparseRows::set_rows(std::span<const int32_t> tokens) {
  rows_.assign(tokens.begin(), tokens.end());
  std::sort(rows_.begin(), rows_.end());
  rows_.erase(std::unique(rows_.begin(), rows_.end()), rows_.end());
  return int64_t(rows_.size());
}

void SparseRows::set_counts(std::vector<int64_t> counts) {
  counts_ = std::move(counts);
  most_ = *std::max_element(counts_.begin(), counts_.end());
}

void SparseRows::reduce(StreamRef stream, comm::Communicator& comm, Tensor table, std::string_view unit) {
  std::byte* own_ids = buffer_.data();
  std::byte* all_ids = own_ids + id_bytes();
  std::byte* own_rows = all_ids + id_bytes() * size_t(ranks_);
  std::byte* all_rows = own_rows + row_bytes();
  stream.launch([=, this](Workers&) {
    std::memcpy(own_ids, rows_.data(), rows_.size() * sizeof(int32_t));
    const size_t width = size_t(cols_) * size_of(dtype_);
    for (size_t i = 0; i < rows_.size(); ++i) {
      std::memcpy(own_rows + i * width, table.slice(rows_[i], 1).data, width);
    }
  });
  const comm::Part ids{own_ids, all_ids, most_};
  const comm::Part rows{own_rows, all_rows, most_ * cols_};
  comm.all_gather(stream, {&ids, 1}, DType::i32, unit);
  comm.all_gather(stream, {&rows, 1}, dtype_, unit);
  stream.launch([=, this](Workers&) {
    dispatch_float(dtype_, [&]<class T>() {
      merge_rows(reinterpret_cast<const int32_t*>(all_ids), reinterpret_cast<const T*>(all_rows), counts_,
                 most_, table);
    });
  });
}

}  // namespace zeno::zero
