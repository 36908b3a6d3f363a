#include "zeno/kernels/cuda/matmul/matmul_algorithm.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>

namespace zeno::cuda {
namespace {

struct Name {
  int id;
  const char* name;
};

constexpr Name kTiles[] = {
    {CUBLASLT_MATMUL_TILE_64x64, "64x64"},     {CUBLASLT_MATMUL_TILE_64x96, "64x96"},
    {CUBLASLT_MATMUL_TILE_64x128, "64x128"},   {CUBLASLT_MATMUL_TILE_64x192, "64x192"},
    {CUBLASLT_MATMUL_TILE_64x256, "64x256"},   {CUBLASLT_MATMUL_TILE_64x320, "64x320"},
    {CUBLASLT_MATMUL_TILE_64x512, "64x512"},   {CUBLASLT_MATMUL_TILE_96x64, "96x64"},
    {CUBLASLT_MATMUL_TILE_96x128, "96x128"},   {CUBLASLT_MATMUL_TILE_128x32, "128x32"},
    {CUBLASLT_MATMUL_TILE_128x64, "128x64"},   {CUBLASLT_MATMUL_TILE_128x96, "128x96"},
    {CUBLASLT_MATMUL_TILE_128x128, "128x128"}, {CUBLASLT_MATMUL_TILE_128x160, "128x160"},
    {CUBLASLT_MATMUL_TILE_128x192, "128x192"}, {CUBLASLT_MATMUL_TILE_128x256, "128x256"},
    {CUBLASLT_MATMUL_TILE_128x320, "128x320"}, {CUBLASLT_MATMUL_TILE_160x128, "160x128"},
    {CUBLASLT_MATMUL_TILE_192x64, "192x64"},   {CUBLASLT_MATMUL_TILE_192x128, "192x128"},
    {CUBLASLT_MATMUL_TILE_192x192, "192x192"}, {CUBLASLT_MATMUL_TILE_256x64, "256x64"},
    {CUBLASLT_MATMUL_TILE_256x128, "256x128"}, {CUBLASLT_MATMUL_TILE_256x192, "256x192"},
    {CUBLASLT_MATMUL_TILE_320x64, "320x64"},   {CUBLASLT_MATMUL_TILE_320x128, "320x128"},
    {CUBLASLT_MATMUL_TILE_512x64, "512x64"},
};

// Those that are tried as well.
constexpr Name kClusters[] = {
    {CUBLASLT_CLUSTER_SHAPE_1x1x1, "1x1"}, {CUBLASLT_CLUSTER_SHAPE_2x1x1, "2x1"},
    {CUBLASLT_CLUSTER_SHAPE_1x2x1, "1x2"}, {CUBLASLT_CLUSTER_SHAPE_2x2x1, "2x2"},
    {CUBLASLT_CLUSTER_SHAPE_4x1x1, "4x1"}, {CUBLASLT_CLUSTER_SHAPE_1x4x1, "1x4"},
    {CUBLASLT_CLUSTER_SHAPE_4x2x1, "4x2"}, {CUBLASLT_CLUSTER_SHAPE_2x4x1, "2x4"},
};

std::string name_in(std::span<const Name> names, int id) {
  for (const Name& entry : names) {
    if (entry.id == id) return entry.name;
  }
  return fmt::format("#{}", id);
}

template <class T>
bool set(cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t attribute, T value) {
  return cublasLtMatmulAlgoConfigSetAttribute(&algo, attribute, &value, sizeof value) ==
         CUBLAS_STATUS_SUCCESS;
}

}  // namespace

std::vector<cublasLtMatmulAlgo_t> variants_of(const cublasLtMatmulAlgo_t& algo) {
  std::vector<cublasLtMatmulAlgo_t> variants;
  for (const Name& cluster : kClusters) {
    if (config<uint16_t>(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID) == uint16_t(cluster.id)) continue;
    cublasLtMatmulAlgo_t other = algo;
    if (set(other, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, uint16_t(cluster.id))) variants.push_back(other);
  }
  const auto swizzle = config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING);
  if (capability<uint32_t>(algo, CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT).value_or(0) != 0 && swizzle &&
      *swizzle <= 1) {
    cublasLtMatmulAlgo_t other = algo;
    if (set(other, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 1 - *swizzle)) variants.push_back(other);
  }
  const bool can_split =
      capability<int32_t>(algo, CUBLASLT_ALGO_CAP_SPLITK_SUPPORT).value_or(0) != 0 &&
      (capability<uint32_t>(algo, CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK).value_or(0) & kReductions) != 0;
  for (int parts : {1, 2, 3, 4}) {
    if (parts == split_of(algo) || (parts > 1 && !can_split)) continue;
    cublasLtMatmulAlgo_t other = algo;
    const uint32_t reduction = parts == 1 ? uint32_t(CUBLASLT_REDUCTION_SCHEME_NONE) : kReductions;
    if (set(other, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, int32_t(parts)) &&
        set(other, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, reduction))
      variants.push_back(other);
  }
  return variants;
}

std::string tile_name(const cublasLtMatmulAlgo_t& algo) {
  const auto tile = config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_TILE_ID);
  return tile && *tile != CUBLASLT_MATMUL_TILE_UNDEFINED ? name_in(kTiles, int(*tile)) : "-";
}

std::string cluster_name(const cublasLtMatmulAlgo_t& algo) {
  const auto cluster = config<uint16_t>(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
  return cluster && *cluster != CUBLASLT_CLUSTER_SHAPE_AUTO ? name_in(kClusters, int(*cluster)) : "-";
}

int split_of(const cublasLtMatmulAlgo_t& algo) {
  // 0 and 1 both mean that K stays whole.
  return std::max(config<int32_t>(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM).value_or(1), 1);
}

}  // namespace zeno::cuda
