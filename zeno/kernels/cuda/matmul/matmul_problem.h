// One matmul in terms of cuBLASLt. The library is column-major: our C [M, N] is its Cᵀ [N, M] = Bᵀ·Aᵀ, so
// operands swap places and every row stride becomes a leading dimension. Lives on the stack of a call,
// without allocations: descriptors hold addresses of bias and scales and must not be shared.
#pragma once

#include <cublasLt.h>

#include <optional>
#include <span>
#include <vector>

#include "zeno/device/cuda/runtime.h"
#include "zeno/device/tensor.h"
#include "zeno/kernels/cuda/matmul/matmul_algorithm.h"
#include "zeno/kernels/cuda/matmul/matmul_key.h"

namespace zeno::cuda {

// What the library may use of the stream's scratch.
inline constexpr size_t kMatmulWorkspace = kScratchBytes;

// A product of cuBLASLt's own forms, with addresses.
struct MatmulCall {
  MatmulKey key;
  const void *a = nullptr, *b = nullptr;
  const void *bias = nullptr, *residual = nullptr;
  void* c = nullptr;
  const float *scale_a = nullptr, *scale_b = nullptr;  // fp8 operands: factors in device memory
};

// Fills in the output and what is added to it: sizes M and N, types, addresses, strides, alignments.
void set_output(MatmulCall& call, const Tensor& c, const Tensor& bias, const Tensor& residual,
                bool accumulate);

class MatmulProblem {
 public:
  explicit MatmulProblem(const MatmulCall& call);
  const MatmulCall& call() const { return call_; }

  // The library's choices, best guess first; empty when it has none. Only those that give the same bits every
  // time and need no more than `workspace` bytes.
  std::vector<MatmulAlgorithm> choices(cublasLtHandle_t handle, int most, size_t workspace);
  // `algo` if it can run this matmul.
  std::optional<MatmulAlgorithm> accept(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algo);

  // Async on `stream`.
  cublasStatus_t run(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algo,
                     std::span<std::byte> workspace, cudaStream_t stream);

 private:
  bool dependable(const cublasLtMatmulAlgo_t& algo) const;

  const MatmulCall& call_;
  cublasLtMatmulDescOpaque_t operation_;
  cublasLtMatrixLayoutOpaque_t a_, b_, addend_, c_;
};

}  // namespace zeno::cuda
