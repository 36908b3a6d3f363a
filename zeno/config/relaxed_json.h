// Reader of the JSON that users really have: JSON plus //, # and /* */ comments, trailing commas, line breaks
// in place of commas, unquoted keys and single quotes. Stricter than HJSON elsewhere: duplicate keys, NaN,
// Infinity and unquoted strings are errors. Every value knows its line and column, so that later checks can
// point at it. Pure functions over values; safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zeno::config {

struct JsonMember;

struct JsonValue {
  enum class Type { null, boolean, number, string, array, object };
  Type type = Type::null;
  bool boolean = false;
  double number = 0;
  std::optional<int64_t> integer;   // set when the number is integral and fits: 5e8 is 500000000
  std::string text;                 // the string, or a number as it was written
  std::vector<JsonValue> items;     // array
  std::vector<JsonMember> members;  // object, in the order of the file
  int line = 0, column = 0;         // 1-based, in bytes

  const JsonValue* find(std::string_view key) const;  // null when absent or when this is not an object
  bool is(Type t) const { return type == t; }
};

struct JsonMember {
  std::string key;
  int line = 0, column = 0;  // of the key
  JsonValue value;
};

std::string_view name_of(JsonValue::Type type);
// The value as compact JSON, for messages.
std::string to_text(const JsonValue& value);

// `source` names the text in errors: "ds.json:3:7". Throws a usage Error.
JsonValue parse_relaxed_json(std::string_view text, std::string_view source);

// What --config takes: the path of a file, or the whole config as a base64 string (URL-safe or plain
// alphabet).
struct JsonDocument {
  JsonValue root;
  std::string source;  // the path, or "<base64>"
};
JsonDocument load_relaxed_json(const std::string& path_or_base64);

// Empty optional when the text is not base64.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace zeno::config
