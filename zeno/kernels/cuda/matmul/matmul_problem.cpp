#include "zeno/kernels/cuda/matmul/matmul_problem.h"

#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/kernels/cuda/matmul/matmul_cache.h"

namespace zeno::cuda {
namespace {

cudaDataType_t type_of(OperandType type) {
  switch (type) {
    case OperandType::f32:
      return CUDA_R_32F;
    case OperandType::bf16:
      return CUDA_R_16BF;
    case OperandType::f16:
      return CUDA_R_16F;
    case OperandType::e4m3:
      return CUDA_R_8F_E4M3;
    case OperandType::e5m2:
      return CUDA_R_8F_E5M2;
  }
  return CUDA_R_32F;
}
cudaDataType_t type_of(DType dtype) { return type_of(operand_type(dtype)); }

template <class T>
void set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_lt(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof value), "describe a product");
}

template <class T>
void set(cublasLtMatmulPreferenceOpaque_t& wish, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  check_lt(cublasLtMatmulPreferenceSetAttribute(&wish, attribute, &value, sizeof value), "set a preference");
}

// A row-major [rows, cols] matrix as the library sees it: [cols, rows].
template <class Type>
void set_layout(cublasLtMatrixLayoutOpaque_t& layout, Type type, int64_t rows, int64_t cols, int64_t stride) {
  check_lt(cublasLtMatrixLayoutInit(&layout, type_of(type), uint64_t(cols), uint64_t(rows), stride),
           "describe a matrix");
}

cublasOperation_t operation_of(bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; }

// Roles swap: B of ours is A of the library's.
void describe_fp8(cublasLtMatmulDescOpaque_t& operation, const MatmulCall& call) {
  ensure(call.scale_a != nullptr && call.scale_b != nullptr, "[matmul] fp8 operands without scales");
  set(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.scale_b);
  set(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, call.scale_a);
  set(operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t(0));
}

}  // namespace

void set_output(MatmulCall& call, const Tensor& c, const Tensor& bias, const Tensor& residual,
                bool accumulate) {
  // A single row may come with any stride; the library wants one that could be.
  const auto leading = [](const Tensor& t) { return std::max(t.stride, t.cols); };
  MatmulKey& key = call.key;
  key.m = c.rows;
  key.n = c.cols;
  key.ldc = leading(c);
  key.output = c.dtype;
  key.align_c = alignment_of(c.data);
  call.c = c.data;
  if (bias) {
    key.bias = true;
    key.align_bias = alignment_of(bias.data);
    call.bias = bias.data;
  }
  if (accumulate) {  // a residual in place is still a residual: its plan, and so its bits, are the same
    key.addend = Addend::output;
  } else if (residual) {
    key.addend = Addend::residual;
    key.ld_residual = leading(residual);
    key.align_residual = alignment_of(residual.data);
    call.residual = residual.data;
  }
}

MatmulProblem::MatmulProblem(const MatmulCall& call) : call_(call) {
  const MatmulKey& key = call.key;
  // CUBLAS_COMPUTE_32F: fp32 operands are multiplied in fp32, not TF32.
  check_lt(cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describe a product");
  set(operation_, CUBLASLT_MATMUL_DESC_TRANSA, operation_of(key.transpose_b));
  set(operation_, CUBLASLT_MATMUL_DESC_TRANSB, operation_of(key.transpose_a));
  if (key.bias) {
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(operation_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t(type_of(bias_type(key))));
    set(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
  }
  if (is_fp8(key.a_type)) describe_fp8(operation_, call);
  set_layout(a_, key.b_type, key.transpose_b ? key.n : key.k, key.transpose_b ? key.k : key.n, key.ldb);
  set_layout(b_, key.a_type, key.transpose_a ? key.k : key.m, key.transpose_a ? key.m : key.k, key.lda);
  set_layout(c_, key.output, key.m, key.n, key.ldc);
  set_layout(addend_, key.output, key.m, key.n, key.addend == Addend::residual ? key.ld_residual : key.ldc);
}

std::vector<MatmulAlgorithm> MatmulProblem::choices(cublasLtHandle_t handle, int most, size_t workspace) {
  const MatmulKey& key = call_.key;
  cublasLtMatmulPreferenceOpaque_t wish;
  check_lt(cublasLtMatmulPreferenceInit(&wish), "make a preference");
  set(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(workspace));
  set(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductions);
  set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t(1) << key.align_b);
  set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t(1) << key.align_a);
  set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
      uint32_t(1) << (key.addend == Addend::residual ? key.align_residual : key.align_c));
  set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t(1) << key.align_c);

  std::vector<cublasLtMatmulHeuristicResult_t> results{size_t(most)};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, &operation_, &a_, &b_, &addend_, &c_,
                                                               &wish, most, results.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check_lt(status, "choose an algorithm");
  std::vector<MatmulAlgorithm> algorithms;
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[size_t(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace && dependable(result.algo))
      algorithms.push_back({result.algo, result.workspaceSize});
  }
  return algorithms;
}

bool MatmulProblem::dependable(const cublasLtMatmulAlgo_t& algo) const {
  if ((config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME).value_or(0) & ~kReductions) != 0)
    return false;
  return call_.key.addend != Addend::residual ||
         capability<int32_t>(algo, CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT).value_or(1) != 0;
}

std::optional<MatmulAlgorithm> MatmulProblem::accept(cublasLtHandle_t handle,
                                                     const cublasLtMatmulAlgo_t& algo) {
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle, &operation_, &a_, &b_, &addend_, &c_, &algo, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.state != CUBLAS_STATUS_SUCCESS ||
      result.workspaceSize > kMatmulWorkspace || !dependable(algo))
    return std::nullopt;
  return MatmulAlgorithm{algo, result.workspaceSize};
}

cublasStatus_t MatmulProblem::run(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algo,
                                  std::span<std::byte> workspace, cudaStream_t stream) {
  const float alpha = 1, beta = call_.key.addend == Addend::none ? 0 : 1;
  const void* const addend = call_.key.addend == Addend::residual ? call_.residual : call_.c;
  return cublasLtMatmul(handle, &operation_, &alpha, call_.b, &a_, call_.a, &b_, &beta, addend, &addend_,
                        call_.c, &c_, &algo, workspace.data(), workspace.size(), stream);
}

}  // namespace zeno::cuda
