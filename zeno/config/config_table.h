// Builds the rows of the key table; used by the config_keys_*.cpp files only. A row of an honoured key names
// the field it sets by member pointers, from which its type, default, choices, reader and printer follow.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "zeno/config/config_keys.h"

namespace zeno::config {

template <auto First, auto... Rest>
auto& field_of(auto& config) {
  if constexpr (sizeof...(Rest) == 0) {
    return config.*First;
  } else {
    return field_of<Rest...>(config.*First);
  }
}

template <class T>
constexpr KeyType key_type_of() {
  if constexpr (std::is_same_v<T, bool>) return KeyType::boolean;
  if constexpr (std::is_same_v<T, int64_t>) return KeyType::integer;
  if constexpr (std::is_same_v<T, double>) return KeyType::number;
  if constexpr (std::is_same_v<T, std::string>) return KeyType::text;
  if constexpr (std::is_same_v<T, DType>) return KeyType::dtype;
  if constexpr (std::is_same_v<T, std::array<double, 2>>) return KeyType::numbers;
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return KeyType::texts;
  return KeyType::choice;
}

// The value has passed check_value for the key's type.
template <class T>
void read_value(T& field, const JsonValue& value) {
  if constexpr (std::is_same_v<T, bool>) {
    field = value.boolean;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    field = value.integer.value();
  } else if constexpr (std::is_same_v<T, double>) {
    field = value.number;
  } else if constexpr (std::is_same_v<T, std::string>) {
    field = value.text;
  } else if constexpr (std::is_same_v<T, DType>) {
    field = parse_dtype(value.text).value();
  } else if constexpr (std::is_same_v<T, std::array<double, 2>>) {
    field = {value.items.at(0).number, value.items.at(1).number};
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    field.clear();
    for (const JsonValue& item : value.items) field.push_back(item.text);
  } else {
    const auto same = [&](std::string_view name) { return equals_ignoring_case(name, value.text); };
    const auto found = std::find_if(kNames<T>.begin(), kNames<T>.end(), same);
    ensure(found != kNames<T>.end(), "[config] {} passed the check of choices", value.text);
    field = static_cast<T>(found - kNames<T>.begin());
  }
}

template <class T>
std::string show_value(const T& field) {
  if constexpr (std::is_same_v<T, bool>) {
    return field ? "true" : "false";
  } else if constexpr (std::is_arithmetic_v<T>) {
    return fmt::format("{}", field);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return '"' + field + '"';
  } else if constexpr (std::is_same_v<T, DType>) {
    return fmt::format("\"{}\"", name_of(field));
  } else if constexpr (std::is_same_v<T, std::array<double, 2>>) {
    return fmt::format("[{}, {}]", field[0], field[1]);
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    std::string out;
    for (const std::string& item : field) out += (out.empty() ? "\"" : ", \"") + item + '"';
    return '[' + out + ']';
  } else {
    return fmt::format("\"{}\"", text_of(field));
  }
}

class TableBuilder {
 public:
  explicit TableBuilder(std::vector<ConfigKey>& rows) : rows_(rows) {}

  // Opens a block: the rows that follow are relative to it. "" goes back to the top level.
  ConfigKey& block(std::string_view path, KeyStatus status = KeyStatus::honoured, std::string_view note = "");
  // A block whose contents are not checked.
  ConfigKey& open_block(std::string_view name, KeyStatus status, std::string_view note);
  void top() { prefix_.clear(); }

  template <auto... Members>
  ConfigKey& key(std::string_view name, std::string_view note) {
    using T = std::remove_cvref_t<decltype(field_of<Members...>(std::declval<TrainConfig&>()))>;
    ConfigKey& row = add(name, key_type_of<T>(), KeyStatus::honoured,
                         show_value(T(field_of<Members...>(defaults_))), note);
    row.assign = [](TrainConfig& config, const JsonValue& value) {
      read_value(field_of<Members...>(config), value);
    };
    row.show = [](const TrainConfig& config) { return show_value(field_of<Members...>(config)); };
    if constexpr (key_type_of<T>() == KeyType::choice) row.choices = {kNames<T>.begin(), kNames<T>.end()};
    return row;
  }

  ConfigKey& no_effect(std::string_view name, KeyType type, std::string_view default_text,
                       std::string_view note) {
    return add(name, type, KeyStatus::no_effect, default_text, note);
  }
  ConfigKey& warned(std::string_view name, KeyType type, std::string_view default_text,
                    std::string_view note) {
    return add(name, type, KeyStatus::warned, default_text, note);
  }
  ConfigKey& refused(std::string_view name, KeyType type, std::string_view default_text,
                     std::string_view note) {
    return add(name, type, KeyStatus::refused, default_text, note);
  }
  // A key inside a warned or refused block.
  ConfigKey& inside(std::string_view name, KeyType type, std::string_view default_text);
  ConfigKey& renamed(std::string_view name, KeyType type, std::vector<std::string> to, std::string_view note);

 private:
  ConfigKey& add(std::string_view name, KeyType type, KeyStatus status, std::string_view default_text,
                 std::string_view note);

  std::vector<ConfigKey>& rows_;
  std::string prefix_;
  TrainConfig defaults_;
};

void add_zero_keys(TableBuilder& table);       // zero_optimization
void add_precision_keys(TableBuilder& table);  // batch, fp16, bf16, data_types, gradients
void add_optimizer_keys(TableBuilder& table);  // optimizer, scheduler
void add_other_keys(TableBuilder& table);      // monitors, aio, checkpoint, parallelism, …
void add_zeno_keys(TableBuilder& table);       // activation_checkpointing, zeno
void add_tuning_keys(TableBuilder& table);     // the part of zeno for fine-tuning

}  // namespace zeno::config
