#include "zeno/kernels/head_slices.h"

#include <algorithm>

#include "zeno/kernels/shape_checks.h"

namespace zeno::cpu {
namespace {

constexpr int64_t kGrain = 16;  // rows per task

template <class T>
T* head_in_slice(const HeadSlices& op, int64_t row, int64_t head, int64_t copy) {
  const auto [rank, place] = op.place(head, copy);
  return op.slices.row<T>(op.slice_row(row, rank)) + place * op.head_dim;
}

template <class T>
T* head_of_token(const HeadSlices& op, int64_t row, int64_t head) {
  return op.tokens.row<T>(row) + head * op.head_dim;
}

// body(row, head) for each head of each token, with the type of the values.
template <class Body>
void for_heads(StreamRef stream, const HeadSlices& op, const Body& body) {
  check_shapes(op);
  stream.launch([op, body](Workers& workers) {
    dispatch_float(op.tokens.dtype, [&]<class T>() {
      workers.for_ranges(op.tokens.rows, kGrain, [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row) {
          for (int64_t head = 0; head < op.token_heads(); ++head) body.template operator()<T>(op, row, head);
        }
      });
    });
  });
}

}  // namespace

void pack_heads(StreamRef stream, const HeadSlices& op) {
  for_heads(stream, op, []<class T>(const HeadSlices& o, int64_t row, int64_t head) {
    for (int64_t copy = 0; copy < o.copies(head); ++copy)
      std::copy_n(head_of_token<T>(o, row, head), o.head_dim, head_in_slice<T>(o, row, head, copy));
  });
}

void unpack_heads(StreamRef stream, const HeadSlices& op) {
  for_heads(stream, op, []<class T>(const HeadSlices& o, int64_t row, int64_t head) {
    T* token = head_of_token<T>(o, row, head);
    if (o.copies(head) == 1) {
      std::copy_n(head_in_slice<T>(o, row, head, 0), o.head_dim, token);
      return;
    }
    for (int64_t i = 0; i < o.head_dim; ++i) {
      float sum = 0;
      for (int64_t copy = 0; copy < o.copies(head); ++copy)
        sum += float(head_in_slice<T>(o, row, head, copy)[i]);
      token[i] = T(sum);
    }
  });
}

}  // namespace zeno::cpu
