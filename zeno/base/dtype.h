// Element types of tensors and of communication, and the one helper that turns a run-time type into a
// template argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/float16.h"

namespace zeno {

enum class DType : uint8_t { f32, bf16, f16, i32, i64, u8, i16 };

constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
    case DType::i16:
      return 2;
    case DType::i64:
      return 8;
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

std::string_view name_of(DType dtype);
// Accepts the names users write: fp32, float32, f32, bf16, bfloat16, fp16, float16, half, f16.
std::optional<DType> parse_dtype(std::string_view name);

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::f32;
}
template <>
constexpr DType dtype_of<BF16>() {
  return DType::bf16;
}
template <>
constexpr DType dtype_of<F16>() {
  return DType::f16;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::i32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::i64;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::u8;
}
template <>
constexpr DType dtype_of<int16_t>() {
  return DType::i16;
}

// Calls f.operator()<T>() with the C++ type of a floating dtype: dispatch_float(d, [&]<class T>() { ... });
template <class F>
decltype(auto) dispatch_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return std::forward<F>(f).template operator()<float>();
    case DType::bf16:
      return std::forward<F>(f).template operator()<BF16>();
    case DType::f16:
      return std::forward<F>(f).template operator()<F16>();
    default:
      fail(ErrorKind::internal, "[dtype] got {}, expected a floating type", name_of(dtype));
  }
}

}  // namespace zeno
