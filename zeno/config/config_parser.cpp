#include "zeno/config/config_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/config/config_keys.h"
#include "zeno/config/config_resolve.h"
#include "zeno/config/config_value.h"

namespace zeno::config {
namespace {

using Type = JsonValue::Type;
using Kind = ValueOrigin::Kind;

JsonValue string_value(std::string text) {
  JsonValue value;
  value.type = Type::string;
  value.text = std::move(text);
  return value;
}

bool is_auto_text(const JsonValue& value) { return value.is(Type::string) && value.text == "auto"; }

// One given value, under the key's present name.
struct Entry {
  JsonValue value;
  ValueOrigin origin;
  std::string written;  // the name it was given under
};

class ConfigReader {
 public:
  ConfigReader(ParsedConfig& parsed, std::string source) : parsed_(parsed), source_(std::move(source)) {}

  void read_file(const JsonValue& root) {
    require(root.is(Type::object), ErrorKind::usage, "[config] {}: got {}, expected a block {{…}}", source_,
            name_of(root.type));
    read_block(root, "", false);
    check_replaced_blocks();
  }

  void read_flag(const FlagOverride& flag) {
    const ConfigKey* key = find_key(flag.key);
    if (key != nullptr && key->status == KeyStatus::renamed && key->rename_to.size() == 1 &&
        key->rename_true.empty()) {
      key = find_key(key->rename_to[0]);
    }
    require(key != nullptr && !key->is_block() && key->status != KeyStatus::renamed, ErrorKind::usage,
            "[config] flag {}: unknown key {}{}", flag.flag, flag.key, hint(suggest_key(flag.key)));
    const ValueOrigin origin{Kind::flag, "flag " + flag.flag};
    const auto found = entries_.find(key->path);
    if (key->type == KeyType::texts && found != entries_.end() && found->second.origin.kind == Kind::flag) {
      found->second.value.items.push_back(string_value(flag.value));
      return;
    }
    Entry entry{string_value(flag.value), origin, key->path};
    if (key->type == KeyType::texts) {
      entry.value.type = Type::array;
      entry.value.items = {string_value(flag.value)};
    }
    if (found != entries_.end() && found->second.origin.kind == Kind::file)
      replaced_values_.insert_or_assign(key->path, found->second);
    entries_.insert_or_assign(key->path, std::move(entry));
  }

  // In the order of the table, so that messages do not depend on the order of the file.
  void apply() {
    for (const ConfigKey& key : config_keys()) {
      const auto found = entries_.find(key.path);
      if (found != entries_.end()) apply_entry(key, found->second);
      const auto replaced = replaced_values_.find(key.path);
      if (replaced != replaced_values_.end()) note_replaced(key, replaced->second, found->second);
    }
    for (const ConfigKey& key : config_keys()) {
      if (applies_to(key, parsed_.config) || !parsed_.given(key.path)) continue;
      const Entry& entry = entries_.at(key.path);
      warn(entry.origin.text, entry.written, "no effect with the chosen type");
    }
  }

 private:
  std::string at(int line) const { return fmt::format("{}:{}", source_, line); }

  static std::string hint(const KeySuggestion& suggestion) {
    if (suggestion.path.empty()) return "; docs/config.md lists all keys";
    return fmt::format("; did you mean {}?", suggestion.path);
  }

  void warn(std::string_view where, std::string_view key, std::string_view text) {
    parsed_.warnings.push_back(fmt::format("{}: {}: {}", where, key, text));
  }

  void read_block(const JsonValue& block, std::string_view prefix, bool strict) {
    for (const JsonMember& member : block.members) {
      const std::string path = prefix.empty() ? member.key : fmt::format("{}.{}", prefix, member.key);
      const ConfigKey* key = find_key(path);
      if (key == nullptr) {
        read_unknown(path, member, strict);
      } else if (key->status == KeyStatus::renamed) {
        read_renamed(*key, member);
      } else if (key->is_block()) {
        read_inner_block(*key, member);
      } else {
        add(*key, path, member.value, member.line);
      }
    }
  }

  void read_unknown(const std::string& path, const JsonMember& member, bool strict) {
    const KeySuggestion suggestion = suggest_key(path);
    const bool misspelt = !suggestion.path.empty() && !suggestion.misplaced;
    // DeepSpeed ignores unknown keys at the top, so scripts keep their own there; a near miss is still a
    // mistake.
    require(!strict && !misspelt, ErrorKind::usage, "[config] {}: unknown key {}{}", at(member.line),
            path.substr(0, 120), hint(suggestion));
    warn(at(member.line), path.substr(0, 120), "unknown key, ignored" + hint(suggestion));
  }

  void read_renamed(const ConfigKey& old_key, const JsonMember& member) {
    if (member.value.is(Type::null)) return;
    const std::string targets = fmt::format("{}", fmt::join(old_key.rename_to, " and "));
    parsed_.notes.push_back(
        fmt::format("{}: {}: {}; read as {}", at(member.line), old_key.path, old_key.note, targets));
    const ConfigKey* target = find_key(old_key.rename_to[0]);
    if (target->is_block()) {
      read_inner_block(*target, member);
      return;
    }
    JsonValue value = member.value;
    if (!old_key.rename_true.empty() && !is_auto_text(value)) {
      const std::string where = fmt::format("{}: {}", at(member.line), old_key.path);
      const bool on = check_value(old_key, value, where, parsed_.warnings).boolean;
      value = string_value(on ? old_key.rename_true : old_key.rename_false);
      replaced_.emplace_back(old_key.path, std::string(target->parent()), member.line);
    }
    for (const std::string& path : old_key.rename_to) add(*find_key(path), old_key.path, value, member.line);
  }

  void read_inner_block(const ConfigKey& key, const JsonMember& member) {
    const JsonValue& value = member.value;
    if (value.is(Type::null) || is_auto_text(value)) return;
    if (key.path == "zero_optimization" && value.is(Type::boolean)) {
      warn(at(member.line), key.path, "booleans are deprecated: true is read as stage 1");
      JsonValue stage = parse_relaxed_json(value.boolean ? "1" : "0", source_);
      add(*find_key("zero_optimization.stage"), key.path, stage, member.line);
      return;
    }
    check_value(key, value, fmt::format("{}: {}", at(member.line), key.path), parsed_.warnings);
    const bool first = blocks_.emplace(key.path, member.line).second;
    require(first, ErrorKind::usage, "[config] {}: {} is the old name of {}, which is also given; keep one",
            at(member.line), member.key, key.path);
    if (is_block_on(key, value)) apply_block_status(key, member.line);
    if (key.type == KeyType::block) read_block(value, key.path, key.strict);
  }

  bool is_block_on(const ConfigKey& key, const JsonValue& value) const {
    if (key.type == KeyType::open_block) return is_active_block(value);
    if (find_key(key.path + ".enabled") == nullptr) return !value.members.empty();
    const JsonValue* enabled = value.find("enabled");
    // Anything else than a switch that is on: its own check says what is wrong with it.
    return enabled != nullptr && (enabled->boolean || enabled->number == 1 || enabled->text == "true");
  }

  void apply_block_status(const ConfigKey& key, int line) {
    require(key.status != KeyStatus::refused, ErrorKind::usage, "[config] {}: {} cannot be honoured: {}",
            at(line), key.path, key.note);
    if (key.status == KeyStatus::warned) warn(at(line), key.path, "not used: " + key.note);
    if (key.status == KeyStatus::no_effect) {
      parsed_.notes.push_back(fmt::format("{}: {}: no effect: {}", at(line), key.path, key.note));
    }
  }

  void add(const ConfigKey& key, const std::string& written, const JsonValue& value, int line) {
    ValueOrigin origin{Kind::file, at(line)};
    Entry entry{value, std::move(origin), written};
    const auto [place, inserted] = entries_.emplace(key.path, std::move(entry));
    require(inserted, ErrorKind::usage, "[config] {}: {} and {} ({}) set the same value; keep one", at(line),
            written, place->second.written, place->second.origin.text);
  }

  // cpu_offload stands for a whole block, so it clashes with the block even when their keys differ.
  void check_replaced_blocks() const {
    for (const auto& [old_path, block, line] : replaced_) {
      const auto found = blocks_.find(block);
      require(found == blocks_.end(), ErrorKind::usage,
              "[config] {}: {} and its successor {} ({}) are both given; keep one", at(line), old_path, block,
              found == blocks_.end() ? "" : at(found->second));
    }
  }

  void apply_entry(const ConfigKey& key, const Entry& entry) {
    if (entry.value.is(Type::null)) return;
    const bool auto_is_value = std::find(key.choices.begin(), key.choices.end(), "auto") != key.choices.end();
    // --resume auto is the one place where "auto" is a value of a text key.
    if (is_auto_text(entry.value) && !auto_is_value && key.path != "zeno.resume") {
      parsed_.origins[key.path] = {Kind::automatic, "auto (" + entry.origin.text + ")"};
      if (!key.auto_text.empty()) key.assign(parsed_.config, parse_relaxed_json(key.auto_text, key.path));
      return;
    }
    const std::string where = fmt::format("{}: {}", entry.origin.text, entry.written);
    const JsonValue value = check_value(key, entry.value, where, parsed_.warnings);
    parsed_.origins[key.path] = entry.origin;
    if (key.assign != nullptr) key.assign(parsed_.config, value);
    if (key.inherits || key.status == KeyStatus::honoured) return;
    const bool neutral = is_neutral(key, value);
    require(key.status != KeyStatus::refused || neutral, ErrorKind::usage,
            "[config] {}: {} cannot be honoured: {}", where, to_text(value).substr(0, 80), key.note);
    if (key.status == KeyStatus::warned && !neutral)
      warn(entry.origin.text, entry.written, "not used: " + key.note);
    if (key.status == KeyStatus::no_effect) {
      parsed_.notes.push_back(fmt::format("{}: no effect: {}", where, key.note));
    }
  }

  // What the file says and a flag has replaced is named, unless it is the same.
  void note_replaced(const ConfigKey& key, const Entry& old, const Entry& now) {
    if (key.assign == nullptr || old.value.is(Type::null) || is_auto_text(old.value)) return;
    const JsonValue before = as_checked(key, old.value), after = as_checked(key, now.value);
    const bool numbers = before.is(Type::number) && after.is(Type::number);
    if (numbers ? before.number == after.number : equals_ignoring_case(to_text(before), to_text(after)))
      return;
    parsed_.replaced.insert_or_assign(key.path, before);
    parsed_.notes.push_back(fmt::format(
        "{}: {} {} is replaced by {} {}", old.origin.text, old.written, to_text(before).substr(0, 80),
        now.origin.text.substr(std::string_view("flag ").size()), to_text(after).substr(0, 80)));
  }
  // A value that does not fit its key stays as it is written: here it only has to be shown.
  static JsonValue as_checked(const ConfigKey& key, const JsonValue& value) {
    try {
      std::vector<std::string> ignored;
      return check_value(key, value, key.path, ignored);
    } catch (const Error&) {
      return value;
    }
  }

  struct Replaced {
    std::string old_path, block;
    int line;
    Replaced(std::string old_name, std::string by, int at_line)
        : old_path(std::move(old_name)), block(std::move(by)), line(at_line) {}
  };

  ParsedConfig& parsed_;
  std::string source_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, Entry, std::less<>> replaced_values_;  // of the file, by flags
  std::map<std::string, int, std::less<>> blocks_;             // blocks given, with their lines
  std::vector<Replaced> replaced_;
};

ParsedConfig parse(const JsonDocument* document, std::span<const FlagOverride> flags) {
  ParsedConfig parsed;
  parsed.from_file = document != nullptr;
  ConfigReader reader(parsed, document != nullptr ? document->source : "flags");
  if (document != nullptr) reader.read_file(document->root);
  for (const FlagOverride& flag : flags) reader.read_flag(flag);
  reader.apply();
  fill_defaults(parsed);
  resolve_values(parsed);
  return parsed;
}

}  // namespace

bool ParsedConfig::given(std::string_view key) const {
  const auto found = origins.find(key);
  return found != origins.end() && (found->second.kind == Kind::file || found->second.kind == Kind::flag);
}

bool ParsedConfig::settled(std::string_view key) const {
  const auto found = origins.find(key);
  return given(key) || (found != origins.end() && found->second.kind == Kind::derived);
}

bool ParsedConfig::is_auto(std::string_view key) const {
  const auto found = origins.find(key);
  return found != origins.end() && found->second.kind == Kind::automatic;
}

void ParsedConfig::derive(std::string_view key, std::string_view why) {
  origins.insert_or_assign(std::string(key), ValueOrigin{Kind::derived, fmt::format("derived: {}", why)});
}

ParsedConfig load_config(const std::string& config, std::span<const FlagOverride> flags) {
  if (config.empty()) return parse(nullptr, flags);
  const JsonDocument document = load_relaxed_json(config);
  return parse(&document, flags);
}

ParsedConfig parse_config(const JsonDocument& document, std::span<const FlagOverride> flags) {
  return parse(&document, flags);
}

}  // namespace zeno::config
