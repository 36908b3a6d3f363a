#include "zeno/config/config_keys.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "zeno/base/error.h"
#include "zeno/config/config_parser.h"

namespace zeno::config {
namespace {

// A value that the key accepts and that is not its default, as JSON.
std::string other_value(const ConfigKey& key) {
  const std::string& standard = key.default_text;
  switch (key.type) {
    case KeyType::boolean:
      return standard == "true" ? "false" : "true";
    case KeyType::integer:
    case KeyType::number: {
      if (key.leaf() == "allgather_size" || key.leaf() == "allgather_bucket_size") return "4";  // even
      const double low = std::isfinite(key.min) ? key.min : 3;
      const double high = std::isfinite(key.max) ? key.max : low + 7;
      const double value = key.type == KeyType::integer ? std::min(low + 2, high) : (low + high) / 2;
      return fmt::format("{}", value == std::atof(standard.c_str()) ? low : value);
    }
    case KeyType::text:
      if (key.leaf().ends_with("_mem")) return "\"80GB\"";
      return key.choices.empty() ? "\"something\"" : fmt::format("\"{}\"", key.choices.back());
    case KeyType::choice:
      return fmt::format("\"{}\"", key.choices[standard == fmt::format("\"{}\"", key.choices[0]) ? 1 : 0]);
    case KeyType::dtype:
      return "\"bf16\"";
    case KeyType::numbers:
      return "[0.5, 0.75]";
    case KeyType::texts:
      return "[\"one\", \"two\"]";
    case KeyType::block:
    case KeyType::open_block:
      return "{}";
  }
  return "null";
}

// {"a":{"b":value}} for the path a.b.
std::string nest(const std::string& path, const std::string& value) {
  const size_t dot = path.find('.');
  if (dot == std::string::npos) return fmt::format("{{\"{}\": {}}}", path, value);
  return fmt::format("{{\"{}\": {}}}", path.substr(0, dot), nest(path.substr(dot + 1), value));
}

// A block like zenflow is refused as soon as it is given, whatever is in it.
bool in_refused_block(const ConfigKey& key) {
  const ConfigKey* parent = find_key(key.parent());
  return parent != nullptr && parent->status == KeyStatus::refused &&
         find_key(parent->path + ".enabled") == nullptr;
}

ParsedConfig parse_keys(const std::string& text) {
  return parse_config({parse_relaxed_json(text, "t.json"), "t.json"}, {});
}

std::string refusal_of(const std::string& text) {
  try {
    parse_keys(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
    return error.what();
  }
  return "";
}

TEST(ConfigKeys, TableIsSound) {
  std::set<std::string> paths, flags;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_TRUE(paths.insert(key.path).second) << key.path;
    EXPECT_EQ(find_key(key.path), &key);
    if (!key.parent().empty()) {
      const ConfigKey* parent = find_key(key.parent());
      ASSERT_NE(parent, nullptr) << key.path;
      EXPECT_EQ(parent->type, KeyType::block) << key.path;
    }
    if (!key.flag.empty()) {
      EXPECT_TRUE(flags.insert(key.flag).second) << key.flag;
      EXPECT_EQ(find_flag(key.flag), &key);
      EXPECT_NE(key.assign, nullptr) << key.flag;
    }
    if (!key.is_block()) {
      EXPECT_FALSE(key.note.empty()) << key.path;
    }
    if (key.status == KeyStatus::honoured && !key.is_block()) {
      EXPECT_NE(key.assign, nullptr) << key.path;
    }
    for (const std::string& target : key.rename_to) {
      ASSERT_NE(find_key(target), nullptr) << key.path;
      EXPECT_NE(find_key(target)->status, KeyStatus::renamed) << key.path;
    }
    if (key.type == KeyType::choice) {
      EXPECT_FALSE(key.choices.empty()) << key.path;
    }
  }
  EXPECT_GT(paths.size(), 200u);
}

// Every key is reachable: it sets its field, or is mentioned by name, or is refused by name.
TEST(ConfigKeys, NoKeyIsIgnoredSilently) {
  const std::set<std::string> needs_more = {"zero_optimization.offload_optimizer.ratio",  // below 1: stage 3
                                            "data_types.param_dtype",
                                            "data_types.grad_accum_dtype",
                                            "zeno.matmul_dtype",  // needs bf16
                                            "zeno.state_dtype",
                                            "zeno.eval_every",  // these need evaluation data
                                            "zeno.eval_on_start",
                                            "zeno.keep_best",
                                            "zeno.early_stopping",
                                            "scheduler.type",
                                            "zero_optimization.offload_param.device",
                                            "zero_optimization.offload_optimizer.device"};
  for (const ConfigKey& key : config_keys()) {
    if (key.is_block() || key.inherits || needs_more.count(key.path) != 0) continue;
    const std::string text = nest(key.path, other_value(key));
    if (key.status == KeyStatus::refused) {
      const std::string error = refusal_of(text);
      EXPECT_NE(error.find(key.path), std::string::npos) << text << " -> " << error;
      EXPECT_NE(error.find("t.json:1"), std::string::npos) << error;
      continue;
    }
    const ParsedConfig parsed = parse_keys(text);
    bool mentioned = false;
    for (const auto* lines : {&parsed.warnings, &parsed.notes}) {
      for (const std::string& line : *lines)
        mentioned = mentioned || line.find(key.path) != std::string::npos;
    }
    if (key.status == KeyStatus::honoured) {
      EXPECT_EQ(parsed.origins.at(key.path).text, "t.json:1") << text;
      EXPECT_NE(key.show(parsed.config), key.show(TrainConfig())) << text;
    } else {
      EXPECT_TRUE(mentioned) << text;
    }
  }
}

TEST(ConfigKeys, DefaultsAreAcceptedEverywhere) {
  for (const ConfigKey& key : config_keys()) {
    if (key.is_block() || key.status == KeyStatus::renamed || in_refused_block(key)) continue;
    EXPECT_EQ(refusal_of(nest(key.path, key.default_text)), "") << key.path;
    EXPECT_EQ(refusal_of(nest(key.path, "null")), "") << key.path;
    EXPECT_EQ(refusal_of(nest(key.path, "\"auto\"")), "") << key.path;
  }
}

TEST(ConfigKeys, WrongTypesAndRangesAreRefused) {
  for (const ConfigKey& key : config_keys()) {
    if (key.is_block() || key.status == KeyStatus::renamed || in_refused_block(key)) continue;
    const std::string object = refusal_of(nest(key.path, "{\"x\": 1}"));
    EXPECT_NE(object.find(key.path), std::string::npos) << key.path << ": " << object;
    const bool numeric = key.type == KeyType::integer || key.type == KeyType::number;
    if (numeric) {
      EXPECT_NE(refusal_of(nest(key.path, "true")), "") << key.path;
      EXPECT_NE(refusal_of(nest(key.path, "\"many\"")), "") << key.path;
      if (std::isfinite(key.min)) {
        EXPECT_NE(refusal_of(nest(key.path, fmt::format("{}", key.min - 1))), "") << key.path;
      }
      if (std::isfinite(key.max)) {
        EXPECT_NE(refusal_of(nest(key.path, fmt::format("{}", key.max * 2))), "") << key.path;
      }
    }
    if (key.type == KeyType::integer && !key.rounds_down) {
      EXPECT_NE(refusal_of(nest(key.path, "1.5")), "") << key.path;
    }
    if (key.type == KeyType::choice || key.type == KeyType::dtype) {
      EXPECT_NE(refusal_of(nest(key.path, "\"purple\"")), "") << key.path;
    }
  }
}

// Two random edits of a known name, one for the very short ones, must be answered with a known name.
TEST(ConfigKeys, MisspeltKeysGetASuggestion) {
  uint32_t noise = 7;
  const auto random = [&](uint32_t n) {
    noise = noise * 1664525u + 1013904223u;
    return (noise >> 8) % n;
  };
  for (const ConfigKey& key : config_keys()) {
    for (int round = 0; round < 4; ++round) {
      std::string leaf(key.leaf());
      for (int edit = key.leaf().size() <= 3 ? 1 : 2; edit > 0; --edit) {
        const size_t at = random(static_cast<uint32_t>(leaf.size()));
        const char letter = static_cast<char>('a' + random(26));
        switch (random(3)) {
          case 0:
            leaf[at] = letter;
            break;
          case 1:
            leaf.insert(at, 1, letter);
            break;
          default:
            leaf.erase(at, leaf.size() > 1 ? 1 : 0);
        }
      }
      const std::string path = key.parent().empty() ? leaf : std::string(key.parent()) + '.' + leaf;
      if (find_key(path) != nullptr) continue;
      const KeySuggestion suggestion = suggest_key(path);
      ASSERT_NE(suggestion.path, "") << path;
      EXPECT_FALSE(suggestion.misplaced);
      if (in_refused_block(key)) continue;
      const std::string error = refusal_of(nest(path, "1"));
      EXPECT_NE(error.find("did you mean"), std::string::npos) << path << ": " << error;
    }
  }
  EXPECT_EQ(suggest_key("zero_optimization.stge").path, "zero_optimization.stage");
  EXPECT_EQ(suggest_key("gradient_cliping").path, "gradient_clipping");
  EXPECT_EQ(suggest_key("reduce_bucket_size").path, "zero_optimization.reduce_bucket_size");
  EXPECT_TRUE(suggest_key("reduce_bucket_size").misplaced);
  EXPECT_EQ(suggest_key("my_private_setting_of_a_script").path, "");
}

TEST(ConfigKeys, EditDistance) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("stage", "stage"), 0);
  EXPECT_EQ(edit_distance("stge", "stage"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

}  // namespace
}  // namespace zeno::config
