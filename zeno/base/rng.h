// Randomness as a function: the same (seed, stream, index) gives the same number on every rank, at every
// world size and after every restart, so there is no generator state to save or to lose.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace zeno {

// Finaliser of splitmix64: a bijection of 64 bits with full avalanche.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

constexpr uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  return mix64(mix64(mix64(seed) ^ stream) ^ index);
}

// 32 random bits of a counter under a key. only 32-bit multiplications: a GPU has no others, and vectors of a
// CPU hold more of them.
constexpr uint32_t random_bits32(uint64_t key, uint32_t counter) {
  uint32_t bits = counter ^ uint32_t(key);
  bits = (bits ^ bits >> 16) * 0x7feb352du;
  bits = (bits ^ bits >> 15 ^ uint32_t(key >> 32)) * 0x846ca68bu;
  return bits ^ bits >> 16;
}

// A stream number from a name. FNV-1a: the same on every machine and compiler, unlike std::hash.
constexpr uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : name) hash = (hash ^ uint8_t(c)) * 0x100000001b3ull;
  return hash;
}

// Uniform in [0, 1) with 24 random bits: exact in float.
constexpr float random_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  return float(random_bits(seed, stream, index) >> 40) * 0x1p-24f;
}

// Standard normal by Box–Muller in double.
inline double random_normal(uint64_t seed, uint64_t stream, uint64_t index) {
  const uint64_t bits = random_bits(seed, stream, index);
  const double u = (double(bits >> 32) + 1.0) * 0x1p-32;
  const double v = double(bits & 0xffffffffu) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace zeno
