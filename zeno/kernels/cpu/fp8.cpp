// The engine refuses fp8 on a CPU before anything runs.
#include "zeno/kernels/fp8.h"

namespace zeno::cpu {

void fp8_quantise(StreamRef, const Fp8Quantise&) {
  fail(ErrorKind::internal, "[fp8_quantise] got a CPU stream, expected a GPU's");
}

void fp8_matmul(StreamRef, const Fp8Product&) {
  fail(ErrorKind::internal, "[fp8_matmul] got a CPU stream, expected a GPU's");
}

}  // namespace zeno::cpu
