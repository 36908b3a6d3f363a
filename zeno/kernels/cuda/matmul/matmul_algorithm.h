// Algorithms of cuBLASLt as plain data: their parts, and which others are similar.
#pragma once

#include <cublasLt.h>

#include <optional>
#include <string>
#include <vector>

namespace zeno::cuda {

struct MatmulAlgorithm {
  cublasLtMatmulAlgo_t algo;
  size_t workspace;
};

// Sums split over K are added up in fp32 in a fixed order, from the workspace; the schemes that add into the
// output round in between.
inline constexpr uint32_t kReductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

// A part of an algorithm, or what it can do; empty if the library does not say.
template <class T>
std::optional<T> config(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  size_t written = 0;
  if (cublasLtMatmulAlgoConfigGetAttribute(&algo, attribute, &value, sizeof value, &written) !=
      CUBLAS_STATUS_SUCCESS)
    return std::nullopt;
  return value;
}
template <class T>
std::optional<T> capability(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoCapAttributes_t attribute) {
  T value{};
  size_t written = 0;
  if (cublasLtMatmulAlgoCapGetAttribute(&algo, attribute, &value, sizeof value, &written) !=
      CUBLAS_STATUS_SUCCESS)
    return std::nullopt;
  return value;
}

// The same algorithm with another shape of clusters, another order of tiles, or K split otherwise, one change
// each. The library has yet to say whether it takes them for a product.
std::vector<cublasLtMatmulAlgo_t> variants_of(const cublasLtMatmulAlgo_t& algo);

// The tile of C that one block computes, "256x128", and blocks per cluster, "2x1", as the library names them:
// its C is our Cᵀ. "#7" where we have no name, "-" where the library does not say.
std::string tile_name(const cublasLtMatmulAlgo_t& algo);
std::string cluster_name(const cublasLtMatmulAlgo_t& algo);
// Into how many parts K is split.
int split_of(const cublasLtMatmulAlgo_t& algo);

}  // namespace zeno::cuda
