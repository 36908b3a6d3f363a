#include "zeno/data/dataset/fields.h"

#include <algorithm>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"
#include "zeno/data/dataset/record.h"

namespace zeno::data {
namespace {

char lower_letter(char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; }

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, lower_letter, lower_letter);
}

}  // namespace

bool is_empty_value(const Json& value) {
  return value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         (value.is_structured() && value.empty());
}

Fields::Fields(Json& record, const Columns& columns) : columns_(&columns) {
  static const std::string kMessages = "messages";
  if (record.is_array() && !record.empty() && looks_like_message(record[0])) {
    entries_.push_back({&kMessages, kMessages, &record});
    return;
  }
  require(record.is_object(), ErrorKind::data, "not a JSON object");
  for (auto& [key, value] : record.get_ref<Json::object_t&>()) {
    // A column stands for its field, and neither name for anything else.
    std::string_view name = key;
    for (const auto& [field, column] : columns) {
      if (key == column) {
        name = field;
        break;
      }
      if (same_name(key, field)) name = {};
    }
    entries_.push_back({&key, name, &value});
  }
  for (const auto& [field, column] : columns) {
    // Records may leave out what not every one has.
    const bool optional = field == "system" || field == "input" || field == "history" || field == "tools";
    require(optional || record.contains(column), ErrorKind::data,
            "--columns {}={}: the record has no column '{}'; it has {}", field, column, column, list());
  }
}

bool Fields::maps(Names fields) const {
  return std::ranges::any_of(
      *columns_, [&](const auto& pair) { return std::ranges::find(fields, pair.first) != fields.end(); });
}

const Fields::Entry* Fields::entry_of(Names names) const {
  for (const std::string_view name : names) {
    for (const bool exact : {true, false}) {
      for (const Entry& entry : entries_) {
        const bool same = exact ? entry.name == name : same_name(entry.name, name);
        if (same && !entry.value->is_null()) return &entry;
      }
    }
  }
  return nullptr;
}

Json* Fields::find(Names names) const {
  const Entry* entry = entry_of(names);
  return entry == nullptr ? nullptr : entry->value;
}

Json* Fields::take(Names names) {
  const Entry* entry = entry_of(names);
  if (entry == nullptr) return nullptr;
  entries_[size_t(entry - entries_.data())].taken = true;
  return entry->value;
}

std::string Fields::text(Names names) {
  const Entry* entry = entry_of(names);
  require(entry != nullptr, ErrorKind::data, "no '{}'; the fields are {}", *names.begin(), list());
  require(entry->value->is_string(), ErrorKind::data, "'{}' is not a text", shortened(*entry->key, 40));
  return std::move(take(names)->get_ref<std::string&>());
}

std::string Fields::optional_text(Names names) { return has(names) ? text(names) : std::string(); }

const std::string* Fields::find_text(Names names) const {
  const Json* value = find(names);
  return value != nullptr && value->is_string() ? &value->get_ref<const std::string&>() : nullptr;
}

void Fields::add_unused(std::string name) {
  if (std::ranges::find(unused_, name) == unused_.end()) unused_.push_back(std::move(name));
}

std::vector<std::string> Fields::unused() const {
  std::vector<std::string> out = unused_;
  for (const Entry& entry : entries_) {
    if (!entry.taken && !is_empty_value(*entry.value)) out.push_back(*entry.key);
  }
  return out;
}

std::string Fields::list() const {
  std::string out;
  for (const Entry& entry : entries_) {
    if (out.size() > 100) return out + ", …";
    out += (out.empty() ? "" : ", ") + shortened(*entry.key, 40);
  }
  return out.empty() ? "none" : out;
}

}  // namespace zeno::data
