#include "zeno/config/config_keys.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "zeno/config/config_table.h"

namespace zeno::config {

ConfigKey& ConfigKey::range(double low, double high) {
  min = low;
  max = high;
  return *this;
}

ConfigKey& ConfigKey::set_flag(std::string_view name, std::string_view alone) {
  flag = name;
  flag_alone = alone;
  return *this;
}

ConfigKey& ConfigKey::set_takes(std::string_view word) {
  takes = word;
  return *this;
}

ConfigKey& ConfigKey::set_flag_off(std::string_view name) {
  flag_off = name;
  return *this;
}

ConfigKey& ConfigKey::set_auto(std::string_view text) {
  auto_text = text;
  return *this;
}

ConfigKey& ConfigKey::set_only_with(std::vector<std::string> types) {
  only_with = std::move(types);
  return *this;
}

ConfigKey& ConfigKey::set_choices(std::vector<std::string_view> names) {
  choices = std::move(names);
  return *this;
}

ConfigKey& ConfigKey::set_advice(std::string_view text) {
  advice = text;
  return *this;
}

ConfigKey& ConfigKey::set_rounds_down() {
  rounds_down = true;
  return *this;
}

ConfigKey& ConfigKey::set_default(std::string_view text) {
  default_text = text;
  return *this;
}

std::string_view ConfigKey::leaf() const {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? std::string_view(path) : std::string_view(path).substr(dot + 1);
}

std::string_view ConfigKey::parent() const {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? std::string_view() : std::string_view(path).substr(0, dot);
}

ConfigKey& TableBuilder::add(std::string_view name, KeyType type, KeyStatus status,
                             std::string_view default_text, std::string_view note) {
  ConfigKey& row = rows_.emplace_back();
  row.path = prefix_.empty() ? std::string(name) : prefix_ + '.' + std::string(name);
  row.type = type;
  row.status = status;
  row.default_text = default_text;
  row.note = note;
  return row;
}

ConfigKey& TableBuilder::block(std::string_view path, KeyStatus status, std::string_view note) {
  prefix_.clear();
  ConfigKey& row = add(path, KeyType::block, status, "null", note);
  prefix_ = path;
  return row;
}

ConfigKey& TableBuilder::open_block(std::string_view name, KeyStatus status, std::string_view note) {
  return add(name, KeyType::open_block, status, "null", note);
}

ConfigKey& TableBuilder::inside(std::string_view name, KeyType type, std::string_view default_text) {
  ConfigKey& row = add(name, type, KeyStatus::no_effect, default_text, "as its block");
  row.inherits = true;
  return row;
}

ConfigKey& TableBuilder::renamed(std::string_view name, KeyType type, std::vector<std::string> to,
                                 std::string_view note) {
  ConfigKey& row = add(name, type, KeyStatus::renamed, "null", note);
  row.rename_to = std::move(to);
  return row;
}

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = [] {
    std::vector<ConfigKey> rows;
    TableBuilder table(rows);
    add_precision_keys(table);
    add_zero_keys(table);
    add_optimizer_keys(table);
    add_zeno_keys(table);
    add_other_keys(table);
    return rows;
  }();
  return keys;
}

const ConfigKey* find_key(std::string_view path) {
  static const std::unordered_map<std::string_view, const ConfigKey*> index = [] {
    std::unordered_map<std::string_view, const ConfigKey*> map;
    for (const ConfigKey& key : config_keys()) {
      ensure(map.emplace(key.path, &key).second, "[config keys] {} is in the table twice", key.path);
    }
    return map;
  }();
  const auto found = index.find(path);
  return found == index.end() ? nullptr : found->second;
}

const ConfigKey* find_flag(std::string_view flag) {
  for (const ConfigKey& key : config_keys()) {
    if (!key.flag.empty() && key.flag == flag) return &key;
  }
  return nullptr;
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [&](char x, char y) { return lower(x) == lower(y); });
}

bool applies_to(const ConfigKey& key, const TrainConfig& config) {
  if (key.only_with.empty()) return true;
  const bool schedule = key.path.starts_with("scheduler.");
  const std::string type = schedule ? std::string(text_of(config.schedule.type)) : config.optimizer.type;
  return std::any_of(key.only_with.begin(), key.only_with.end(),
                     [&](const std::string& name) { return equals_ignoring_case(name, type); });
}

KeySuggestion suggest_key(std::string_view unknown_path) {
  const size_t dot = unknown_path.rfind('.');
  const std::string_view parent = dot == std::string_view::npos ? "" : unknown_path.substr(0, dot);
  const std::string_view leaf = dot == std::string_view::npos ? unknown_path : unknown_path.substr(dot + 1);
  if (leaf.size() > 64) return {};
  const ConfigKey* best = nullptr;
  const ConfigKey* elsewhere = nullptr;
  int best_distance = 3, same_name = 0;
  for (const ConfigKey& key : config_keys()) {
    if (key.parent() == parent) {
      const int distance = equals_ignoring_case(key.leaf(), leaf) ? 0 : edit_distance(key.leaf(), leaf);
      const int allowed = key.leaf().size() <= 3 ? 1 : 2;  // two edits turn any short word into any other
      if (distance < best_distance && distance <= allowed) {
        best_distance = distance;
        best = &key;
      }
    } else if (key.leaf() == leaf && key.status != KeyStatus::renamed) {
      elsewhere = &key;
      ++same_name;
    }
  }
  if (best != nullptr) return {best->path, false};
  if (same_name == 1) return {elsewhere->path, true};
  return {};
}

std::string_view name_of(KeyType type) {
  switch (type) {
    case KeyType::boolean:
      return "true or false";
    case KeyType::integer:
      return "an integer";
    case KeyType::number:
      return "a number";
    case KeyType::text:
      return "a string";
    case KeyType::choice:
      return "one of";
    case KeyType::dtype:
      return "fp32, bf16 or fp16";
    case KeyType::numbers:
      return "a list of numbers";
    case KeyType::texts:
      return "a list of strings";
    case KeyType::block:
    case KeyType::open_block:
      return "a block {…}";
  }
  return "?";
}

std::string_view name_of(KeyStatus status) {
  switch (status) {
    case KeyStatus::honoured:
      return "honoured";
    case KeyStatus::no_effect:
      return "no effect";
    case KeyStatus::warned:
      return "warned";
    case KeyStatus::refused:
      return "refused";
    case KeyStatus::renamed:
      return "renamed";
  }
  return "?";
}

std::string describe_values(const ConfigKey& key) {
  if (!key.choices.empty()) return fmt::format("one of {}", fmt::join(key.choices, ", "));
  const bool low = std::isfinite(key.min), high = std::isfinite(key.max);
  if (low && high) return fmt::format("{} from {} to {}", name_of(key.type), key.min, key.max);
  if (low) return fmt::format("{} >= {}", name_of(key.type), key.min);
  return std::string(name_of(key.type));
}

std::string show_default(const ConfigKey& key) {
  const std::string& text = key.default_text;
  // What depends on something else stands in the note.
  const bool in_note = key.note.find("defaults to") != std::string::npos;
  if (text == "null" || text == "[]" || in_note) return "";
  const bool quoted = text.size() >= 2 && text.front() == '"';
  return quoted ? text.substr(1, text.size() - 2) : text;
}

}  // namespace zeno::config
