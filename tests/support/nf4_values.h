// The starting values of a test model as they would come from a folder whose weights went through NF4.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "tests/support/tiny_decoder.h"
#include "zeno/kernels/nf4.h"

namespace zeno::test {

inline bool is_base_weight(const nn::Parameter& param) {
  return param.name.starts_with("blocks.") && param.rows > 1 && !param.adapter;
}

inline void nf4_values(const nn::Parameter& param, int64_t begin, std::span<float> out) {
  if (!is_base_weight(param)) return init_values(param, begin, out);
  std::vector<float> values(size_t(param.count()));
  init_values(param, 0, values);
  std::vector<Nf4Cell> cells(size_t(nf4_cells(param.count())));
  nf4_quantise(values, cells.data());
  nf4_decode_on_host(cells.data(), values);
  std::copy_n(values.begin() + begin, out.size(), out.begin());
}

}  // namespace zeno::test
