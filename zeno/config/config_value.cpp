#include "zeno/config/config_value.h"

#include <algorithm>
#include <cmath>

#include "zeno/base/error.h"

namespace zeno::config {
namespace {

using Type = JsonValue::Type;

[[noreturn]] void refuse(const ConfigKey& key, const JsonValue& written, const std::string& where) {
  fail(ErrorKind::usage, "[config] {}: got {}, expected {}{}{}", where, to_text(written).substr(0, 80),
       describe_values(key), key.advice.empty() ? "" : "; ", key.advice);
}

JsonValue text_value(std::string text) {
  JsonValue value;
  value.type = Type::string;
  value.text = std::move(text);
  return value;
}

// A quoted scalar or list as the value inside the quotes; unchanged when that is no JSON.
JsonValue unquote(const JsonValue& value, bool as_list) {
  if (!value.is(Type::string)) return value;
  try {
    return parse_relaxed_json(as_list ? '[' + value.text + ']' : value.text, "value");
  } catch (const Error&) {
    return value;
  }
}

JsonValue check_boolean(const ConfigKey& key, const JsonValue& written, const std::string& where) {
  JsonValue value = unquote(written, false);
  if (value.is(Type::number) && (value.number == 0 || value.number == 1)) {
    value.type = Type::boolean;
    value.boolean = value.number == 1;
  }
  if (!value.is(Type::boolean)) refuse(key, written, where);
  return value;
}

void check_range(const ConfigKey& key, const JsonValue& number, const JsonValue& written,
                 const std::string& where) {
  if (!number.is(Type::number) || number.number < key.min || number.number > key.max)
    refuse(key, written, where);
}

JsonValue check_number(const ConfigKey& key, const JsonValue& written, const std::string& where,
                       std::vector<std::string>& warnings) {
  JsonValue value = unquote(written, false);
  if (value.is(Type::array) && value.items.size() == 1)
    value = value.items[0];  // one value per parameter group
  check_range(key, value, written, where);
  if (key.type == KeyType::integer && !value.integer) {
    const bool fits = std::abs(value.number) < 0x1p62;
    if (!key.rounds_down || !fits) refuse(key, written, where);
    value.integer = static_cast<int64_t>(std::floor(value.number));
    warnings.push_back(fmt::format("{}: {} is rounded down to {}", where, value.text, *value.integer));
  }
  return value;
}

JsonValue check_list(const ConfigKey& key, const JsonValue& written, const std::string& where) {
  JsonValue value = key.type == KeyType::numbers ? unquote(written, true) : written;
  if (key.type == KeyType::texts && value.is(Type::string)) {
    value.type = Type::array;
    value.items = {text_value(value.text)};
  }
  if (!value.is(Type::array)) refuse(key, written, where);
  for (const JsonValue& item : value.items) {
    if (key.type == KeyType::numbers) check_range(key, item, written, where);
    if (key.type == KeyType::texts && !item.is(Type::string)) refuse(key, written, where);
  }
  const bool is_pair = key.type == KeyType::numbers && key.assign != nullptr;
  require(!is_pair || value.items.size() == 2, ErrorKind::usage, "[config] {}: got {} values, expected 2",
          where, value.items.size());
  return value;
}

JsonValue check_text(const ConfigKey& key, const JsonValue& written, const std::string& where) {
  if (!written.is(Type::string)) {
    const bool scalar = written.is(Type::number) || written.is(Type::boolean);
    if (key.type != KeyType::text || !scalar) refuse(key, written, where);
    return text_value(to_text(written));
  }
  if (key.type == KeyType::dtype && !parse_dtype(written.text)) refuse(key, written, where);
  const auto same = [&](std::string_view name) { return equals_ignoring_case(name, written.text); };
  const bool known = std::any_of(key.choices.begin(), key.choices.end(), same);
  if (!key.choices.empty() && !known) refuse(key, written, where);
  return written;
}

bool has_enabled(const JsonValue& value, bool only_true) {
  for (const JsonMember& member : value.members) {
    const bool counts =
        member.key == "enabled" && (!only_true || (member.value.is(Type::boolean) && member.value.boolean));
    if (counts || has_enabled(member.value, only_true)) return true;
  }
  return false;
}

}  // namespace

JsonValue check_value(const ConfigKey& key, const JsonValue& written, const std::string& where,
                      std::vector<std::string>& warnings) {
  switch (key.type) {
    case KeyType::boolean:
      return check_boolean(key, written, where);
    case KeyType::integer:
    case KeyType::number:
      return check_number(key, written, where, warnings);
    case KeyType::text:
    case KeyType::choice:
    case KeyType::dtype:
      return check_text(key, written, where);
    case KeyType::numbers:
    case KeyType::texts:
      return check_list(key, written, where);
    case KeyType::block:
    case KeyType::open_block:
      if (!written.is(Type::object)) refuse(key, written, where);
      return written;
  }
  return written;
}

bool is_neutral(const ConfigKey& key, const JsonValue& value) {
  if (value.is(Type::null)) return true;
  if (key.default_text == "null") return false;
  const JsonValue neutral = parse_relaxed_json(key.default_text, key.path);
  switch (key.type) {
    case KeyType::boolean:
      return value.boolean == neutral.boolean;
    case KeyType::integer: {
      const auto off = [](double n) { return n <= 1; };  // of a group size all of these mean: no groups
      return value.number == neutral.number || (off(value.number) && off(neutral.number));
    }
    case KeyType::number:
      return value.number == neutral.number;
    default:
      return equals_ignoring_case(value.text, neutral.text);
  }
}

bool is_active_block(const JsonValue& block) {
  if (has_enabled(block, false)) return has_enabled(block, true);
  return !block.members.empty();
}

}  // namespace zeno::config
