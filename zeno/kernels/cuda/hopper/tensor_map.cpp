#include "zeno/kernels/cuda/hopper/tensor_map.h"

#include <cudaTypedefs.h>

#include <array>

#include "zeno/device/cuda/driver.h"
#include "zeno/kernels/cuda/hopper/operand.h"

namespace zeno::cuda {

CUtensorMap tile_map(const Tensor& matrix, int rows) {
  static const auto encode =
      driver_function<PFN_cuTensorMapEncodeTiled_v12000>("cuTensorMapEncodeTiled", 12000);
  const std::array<cuuint64_t, 2> sizes{cuuint64_t(matrix.cols), cuuint64_t(matrix.rows)};
  const std::array<cuuint64_t, 1> strides{cuuint64_t(matrix.stride) * size_of(matrix.dtype)};
  const std::array<cuuint32_t, 2> box{hopper::kRowValues, cuuint32_t(rows)}, steps{1, 1};
  CUtensorMap map;
  check_driver(encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, uint32_t(sizes.size()), matrix.data,
                      sizes.data(), strides.data(), box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
               "describe a matrix to the copy engine");
  return map;
}

}  // namespace zeno::cuda
