#include "zeno/kernels/moment_cells.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeno/kernels/cpu/moment_cells.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "zeno/base/error.h"
#include "zeno/device/flat_layout.h"
#include "zeno/kernels/cpu/simd_moments.h"

HWY_BEFORE_NAMESPACE();
namespace zeno::HWY_NAMESPACE {

template <StateRole kRole>
void encode_all(std::span<const float> values, MomentCell* cells) {
  HWY_ALIGN float x[kMomentCell];
  for (size_t at = 0; at < values.size(); at += kMomentCell, ++cells) {
    const std::span<const float> part = values.subspan(at, std::min(size_t(kMomentCell), values.size() - at));
    std::fill(std::copy(part.begin(), part.end(), x), x + kMomentCell, 0.0f);
    encode_cell<kRole>(x, nullptr, *cells);
  }
}

template <StateRole kRole>
void decode_all(const MomentCell* cells, std::span<float> values) {
  const FloatTag d;
  for_lanes(d, int64_t(values.size()), [&](int64_t i, auto lanes) HWY_ATTR {
    const MomentCell& cell = cells[i / kMomentCell];
    store(d, decoded<kRole>(cell.codes + i % kMomentCell, cell.exponent, true), values.data() + i, lanes);
  });
}

void encode_span(std::span<const float> values, StateRole role, MomentCell* cells) {
  role == StateRole::v ? encode_all<StateRole::v>(values, cells) : encode_all<StateRole::m>(values, cells);
}
void decode_span(const MomentCell* cells, StateRole role, std::span<float> values) {
  role == StateRole::v ? decode_all<StateRole::v>(cells, values) : decode_all<StateRole::m>(cells, values);
}

}  // namespace zeno::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeno {
namespace {

static_assert(kFlatAlign % kMomentCell == 0, "a cut of the states would divide a cell");

HWY_EXPORT(encode_span);
HWY_EXPORT(decode_span);

void check_role(StateRole role) {
  ensure(role != StateRole::master, "[moment cells] role: got master, expected m or v");
}

}  // namespace

void encode_moments(std::span<const float> values, StateRole role, MomentCell* cells) {
  check_role(role);
  HWY_DYNAMIC_DISPATCH(encode_span)(values, role, cells);
}

void decode_moments(const MomentCell* cells, StateRole role, std::span<float> values) {
  check_role(role);
  HWY_DYNAMIC_DISPATCH(decode_span)(cells, role, values);
}

}  // namespace zeno
#endif  // HWY_ONCE
