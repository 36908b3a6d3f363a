#include "zeno/model/lora.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <regex>
#include <string_view>

#include "zeno/base/error.h"
#include "zeno/nn/lora.h"

namespace zeno::model {
namespace {

constexpr size_t kLongestPattern = 1000;
constexpr int64_t kMaxRank = 1 << 16;

bool is_all_linear(const std::vector<std::string>& targets) {
  if (targets.empty()) return true;
  std::string name = targets[0];
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return targets.size() == 1 && name == "all-linear";
}

bool ends_in(std::string_view module, std::string_view name) {
  if (module == name) return true;
  return module.size() > name.size() && module.ends_with(name) &&
         module[module.size() - name.size() - 1] == '.';
}

std::string_view last_part(std::string_view module) { return module.substr(module.rfind('.') + 1); }

// A single target that is no name: does it match as an expression? Nothing when it is none.
std::optional<std::regex> expression(const std::string& target) {
  require(target.size() <= kLongestPattern, ErrorKind::usage,
          "[lora] a target of {} characters, expected at most {}", target.size(), kLongestPattern);
  try {
    return std::regex(target, std::regex::ECMAScript);
  } catch (const std::regex_error& error) {
    fail(ErrorKind::usage,
         "[lora] target \"{}\" is neither the name of a module nor a regular expression: {}", target,
         error.what());
  }
}

[[noreturn]] void fail_unmatched(const std::string& target, const std::vector<std::string>& modules) {
  std::string names;
  std::set<std::string_view> seen;
  for (const std::string& module : modules) {
    if (!seen.insert(last_part(module)).second) continue;
    names.append(names.empty() ? "" : ", ").append(last_part(module));
  }
  fail(ErrorKind::usage,
       "[lora] target \"{}\" matches no linear layer; expected {}, all-linear, or an expression for whole "
       "names like {}",
       target, names, modules.empty() ? "" : modules.front());
}

}  // namespace

double LoraOptions::scale() const { return alpha / (rslora ? std::sqrt(double(rank)) : double(rank)); }

void check_lora(const LoraOptions& options) {
  require(options.rank >= 1 && options.rank <= kMaxRank, ErrorKind::usage,
          "[lora] rank is {}, expected 1 to {}", options.rank, kMaxRank);
  require(options.dropout >= 0 && options.dropout < 1, ErrorKind::usage,
          "[lora] dropout is {}, expected 0 to below 1", options.dropout);
  require(std::isfinite(options.alpha), ErrorKind::usage, "[lora] alpha is {}, expected a number",
          options.alpha);
}

std::vector<std::string> linear_modules(const std::vector<nn::Parameter>& table) {
  std::vector<std::string> modules;
  for (const nn::Parameter& parameter : table) {
    if (parameter.adapter || !parameter.decay || !parameter.name.starts_with("blocks.")) continue;
    for (const nn::FileSlice& file : parameter.files) modules.emplace_back(nn::module_of(file.name));
  }
  return modules;
}

std::set<std::string, std::less<>> adapted_modules(const std::vector<std::string>& targets,
                                                   const std::vector<std::string>& modules) {
  if (is_all_linear(targets)) return {modules.begin(), modules.end()};
  std::set<std::string, std::less<>> adapted;
  for (const std::string& target : targets) {
    const size_t before = adapted.size();
    bool named = false;
    for (const std::string& module : modules) {
      if (!ends_in(module, target)) continue;
      adapted.insert(module);
      named = true;
    }
    if (!named && targets.size() == 1) {
      const std::optional<std::regex> pattern = expression(target);
      for (const std::string& module : modules) {
        if (std::regex_match(module, *pattern)) adapted.insert(module);
      }
    }
    if (!named && adapted.size() == before) fail_unmatched(target, modules);
  }
  return adapted;
}

std::set<std::string, std::less<>> saved_modules(const std::vector<std::string>& names,
                                                 const std::vector<nn::Parameter>& table) {
  std::set<std::string, std::less<>> others;
  bool has_head = false;
  std::string embedding;
  for (const nn::Parameter& parameter : table) {
    if (parameter.name == "embed.weight") embedding = nn::module_of(parameter.files[0].name);
    has_head |= parameter.name == "lm_head.weight";
    if (parameter.adapter || (parameter.decay && parameter.name.starts_with("blocks."))) continue;
    const std::string_view tensor = parameter.files[0].name;
    if (parameter.files.size() == 1) others.emplace(tensor.substr(0, tensor.rfind('.')));
  }
  if (!has_head) others.emplace("lm_head");
  std::set<std::string, std::less<>> saved;
  for (const std::string& name : names) {
    bool found = false;
    for (const std::string& module : others) {
      if (name.empty() || !module.ends_with(name)) continue;
      saved.insert(module);
      found = true;
    }
    require(found, ErrorKind::usage,
            "[lora] modules_to_save \"{}\" does not name a module that can be trained in full; expected {}, "
            "lm_head or a norm (linear layers of blocks have adapters)",
            name, last_part(embedding));
  }
  const bool tied = !has_head && (saved.contains(embedding) || saved.contains("lm_head"));
  if (tied) saved.insert({embedding, "lm_head"});
  return saved;
}

TargetNames target_names(const std::vector<std::string>& targets, const std::vector<std::string>& modules) {
  if (is_all_linear(targets)) {
    std::set<std::string> names;
    for (const std::string& module : modules) names.emplace(last_part(module));
    return {.pattern = false, .names = {names.begin(), names.end()}};
  }
  const bool named = std::ranges::any_of(modules, [&](const auto& m) { return ends_in(m, targets[0]); });
  return {.pattern = targets.size() == 1 && !named, .names = targets};
}

}  // namespace zeno::model
