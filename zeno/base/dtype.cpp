#include "zeno/base/dtype.h"

namespace zeno {

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "fp32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "fp16";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
    case DType::i16:
      return "i16";
  }
  return "?";
}

std::optional<DType> parse_dtype(std::string_view name) {
  if (name == "fp32" || name == "float32" || name == "f32" || name == "float") return DType::f32;
  if (name == "bf16" || name == "bfloat16" || name == "bfp16") return DType::bf16;
  if (name == "fp16" || name == "float16" || name == "f16" || name == "half") return DType::f16;
  return std::nullopt;
}

}  // namespace zeno
