// Cells for the wire on a GPU: the kernels make the CPU's bytes and bits.
#include "zeno/kernels/wire_cells.h"

#include "tests/cuda/parity.h"

namespace zeno::cuda_tests {
namespace {

class CudaWireCells : public Parity {};

TEST_F(CudaWireCells, HaveTheBitsOfTheCpu) {
  for (const WireCode code : {WireCode::int8, WireCode::int4}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const int64_t cells : {1, 7, 1001}) {
        const int64_t count = cells * kWireCell;
        const Twin x = normal(dtype, 1, count, 3, 0.02);
        const Twin coded = zeros(DType::i32, 1, int64_t(wire_bytes(code, count) / 4));
        const Twin y = poison(dtype, 1, count);
        wire_encode(cpu, code, x.cpu, coded.cpu.data);
        wire_encode(*gpu, code, x.gpu, coded.gpu.data);
        wire_decode(cpu, code, coded.cpu.data, y.cpu);
        wire_decode(*gpu, code, coded.gpu.data, y.gpu);
        EXPECT_EQ(on_gpu(coded), on_cpu(coded)) << name_of(dtype) << " " << cells;
        EXPECT_EQ(on_gpu(y), on_cpu(y)) << name_of(dtype) << " " << cells;
      }
    }
  }
}

TEST_F(CudaWireCells, SumsHaveTheBitsOfTheCpu) {
  const int64_t count = 33 * kWireCell;
  for (const WireCode code : {WireCode::int8, WireCode::int4}) {
    for (const int slices : {1, 3, 8, 13}) {
      const Twin x = normal(DType::f32, slices, count, 5, 0.02);
      const Twin coded = zeros(DType::i32, slices, int64_t(wire_bytes(code, count) / 4));
      wire_encode(cpu, code, x.cpu, coded.cpu.data);
      wire_encode(*gpu, code, x.gpu, coded.gpu.data);
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const Twin y = normal(dtype, 1, count, 6, 0.02);
        for (const bool accumulate : {false, true}) {
          wire_sum(cpu, {code, coded.cpu.data, slices, y.cpu, accumulate});
          wire_sum(*gpu, {code, coded.gpu.data, slices, y.gpu, accumulate});
          EXPECT_EQ(on_gpu(y), on_cpu(y)) << name_of(dtype) << " " << slices;
        }
      }
    }
  }
}

}  // namespace
}  // namespace zeno::cuda_tests
