// The part of the CUDA kernels that other layers call by name, in a build without CUDA: there are no plans to
// keep, and no CUDA stream can be made to fill memory on.
#include "zeno/base/error.h"
#include "zeno/kernels/cuda/fill_random.h"
#include "zeno/kernels/cuda/matmul/matmul_plans.h"

namespace zeno::cuda {

MatmulTuning::MatmulTuning() : products_(0), milliseconds_(0) {}
MatmulTuning::~MatmulTuning() = default;
void load_matmul_plans(const std::filesystem::path&) {}
void save_matmul_plans(const std::filesystem::path&) {}
void fill_random(StreamRef stream, std::byte*, size_t, DType) {
  fail(ErrorKind::internal, "[fill_random] {}: this build has no CUDA", stream.name());
}

}  // namespace zeno::cuda
