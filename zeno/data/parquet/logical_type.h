// What the values of a column mean: Parquet's physical types, and the meanings that its logical types give
// them.
#pragma once

#include <cstdint>

namespace zeno::data::parquet {

// Numbered as in the file.
enum class PhysicalType { boolean, int32, int64, int96, real32, real64, bytes, fixed_bytes };

enum class Meaning {
  plain,
  text,
  date,
  time,
  timestamp,
  decimal,
  unsigned_integer,
  uuid,
  float16,
  list,
  map
};

struct LogicalType {
  Meaning meaning = Meaning::plain;
  int fraction_digits = 0;       // of a second: 3, 6 or 9; time and timestamp only
  bool utc = false;              // timestamp: an instant, not a wall clock's reading
  int scale = 0, precision = 0;  // decimal
};

struct ValueType {
  PhysicalType physical = PhysicalType::boolean;
  int32_t length = 0;  // of fixed_bytes
  LogicalType logical;
};

}  // namespace zeno::data::parquet
