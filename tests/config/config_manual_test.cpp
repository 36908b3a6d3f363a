// docs/config.md ends with the table of keys: its text is made here and compared, so that the two cannot
// differ. When they do, the test leaves the page as it should be in the build folder.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <regex>
#include <set>
#include <sstream>

#include "zeno/config/flag_groups.h"

namespace zeno::config {
namespace {

const std::string kPage = std::string(ZENO_SOURCE_DIR) + "/docs/config.md";
const std::string kRenewed = std::string(ZENO_BINARY_DIR) + "/config.md";
constexpr std::string_view kMark =
    "<!-- Made from zeno/config/config_keys_*.cpp; tests/config/config_manual_test.cpp checks it and says "
    "how to renew it. Everything above this line is written by hand. -->\n";

// 5e8 instead of 500000000.
std::string short_numbers(const std::string& text) {
  static const std::regex round(R"(\b([1-9]\d*?)(0{6,})\b)");
  std::string out;
  size_t at = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), round), end; it != end; ++it) {
    out += text.substr(at, size_t(it->position()) - at) + fmt::format("{}e{}", it->str(1), it->length(2));
    at = size_t(it->position() + it->length());
  }
  return out + text.substr(at);
}

std::string default_of(const ConfigKey& key) {
  const std::string text = show_default(key);
  return text == fmt::format("{}", std::numeric_limits<int64_t>::max()) ? "2^63 − 1" : short_numbers(text);
}

// A bar would end the cell of the table.
std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

std::string takes(const ConfigKey& key) { return cell(short_numbers(describe_values(key))); }

std::string code(std::string_view text) { return fmt::format("`{}`", text); }

std::string flags_of(const ConfigKey& key) {
  if (key.flag.empty()) return "";
  return code(key.flag) + (key.flag_off.empty() ? "" : ", " + code(key.flag_off));
}

std::string what_of(const ConfigKey& key) {
  std::string text = key.note;
  for (size_t i = 0; i < key.rename_to.size(); ++i)
    text += (i == 0 ? ": " : " and ") + code(key.rename_to[i]);
  return cell(text);
}

std::string status_of(const ConfigKey& key) {
  return key.status == KeyStatus::honoured ? "" : std::string(name_of(key.status));
}

void write_flags(std::string& page) {
  for (const FlagGroup& group : flag_groups()) {
    page += fmt::format("\n### {}\n| flag | takes | default | what | key |\n|---|---|---|---|---|\n",
                        group.title);
    for (const ConfigKey* key : group.keys) {
      const bool is_switch = key->type == KeyType::boolean;
      page += fmt::format("| {} | {} | {} | {} | {} |\n", flags_of(*key), is_switch ? "" : takes(*key),
                          is_switch && key->default_text == "false" ? "" : default_of(*key), what_of(*key),
                          code(key->path));
    }
  }
}

// Rows that differ in their name only are one row of the page.
bool same_but_for_name(const ConfigKey& a, const ConfigKey& b) {
  return a.status != KeyStatus::honoured && a.status == b.status && a.type == b.type && a.note == b.note &&
         a.default_text == b.default_text && describe_values(a) == describe_values(b) &&
         a.rename_to == b.rename_to;
}

std::vector<const ConfigKey*> keys_in(std::string_view block) {
  std::vector<const ConfigKey*> keys;
  for (const ConfigKey& key : config_keys()) {
    if (key.parent() == block && !key.is_block()) keys.push_back(&key);
  }
  return keys;
}

// A block has a table of its own when one of its keys does something.
bool has_table(std::string_view block) {
  return std::ranges::any_of(keys_in(block), [](const ConfigKey* key) { return key->assign != nullptr; });
}

void write_table(std::string& page, std::string_view title, std::string_view block) {
  page +=
      fmt::format("\n### {}\n| key | takes | default | | flag | what |\n|---|---|---|---|---|---|\n", title);
  const std::vector<const ConfigKey*> keys = keys_in(block);
  for (size_t i = 0; i < keys.size(); ++i) {
    const ConfigKey& key = *keys[i];
    std::string names = code(key.leaf());
    while (i + 1 < keys.size() && same_but_for_name(key, *keys[i + 1]))
      names += ", " + code(keys[++i]->leaf());
    page += fmt::format("| {} | {} | {} | {} | {} | {} |\n", names, takes(key), default_of(key),
                        status_of(key), flags_of(key), what_of(key));
  }
}

void write_keys(std::string& page) {
  write_table(page, "Top level", "");
  for (const ConfigKey& key : config_keys()) {
    if (key.is_block() && has_table(key.path)) write_table(page, code(key.path), key.path);
  }
}

void write_other_blocks(std::string& page) {
  page += "\n### Other blocks\n| block | | why | keys |\n|---|---|---|---|\n";
  for (const ConfigKey& block : config_keys()) {
    if (!block.is_block() || has_table(block.path)) continue;
    std::string inside;
    for (const ConfigKey* key : keys_in(block.path)) {
      if (key->inherits)
        inside += (inside.empty() ? "" : ", ") + code(key->leaf());
      else
        page += fmt::format("| {} | {} | {} | |\n", code(key->path), status_of(*key), what_of(*key));
    }
    if (block.status != KeyStatus::honoured)
      page +=
          fmt::format("| {} | {} | {} | {} |\n", code(block.path), status_of(block), what_of(block), inside);
  }
  page +=
      "\nA warned or refused block counts only when it is on: `\"enabled\": true`, or not empty where there "
      "is no "
      "`enabled`.\n";
}

std::string made_page() {
  std::string page(kMark);
  page +=
      "\n## Flags\nIn the groups of `zeno train --help`; `--help-all` shows those for experts too. A flag "
      "that takes "
      "nothing is a switch, off unless it is given.\n";
  write_flags(page);
  page +=
      "\n## Keys\nThe unnamed column says what is not honoured: a key that has no effect, is warned about, "
      "refused, or "
      "renamed.\n";
  write_keys(page);
  write_other_blocks(page);
  return page;
}

TEST(FlagGroups, HaveEveryFlagOnce) {
  std::set<std::string> seen;
  for (const FlagGroup& group : flag_groups()) {
    EXPECT_FALSE(group.keys.empty()) << group.title;
    for (const ConfigKey* key : group.keys) EXPECT_TRUE(seen.insert(key->flag).second) << key->flag;
  }
  const auto flags =
      std::ranges::count_if(config_keys(), [](const ConfigKey& key) { return !key.flag.empty(); });
  EXPECT_EQ(int64_t(seen.size()), flags);
}

TEST(ConfigManual, IsThePageOfTheTable) {
  std::ifstream file(kPage);
  std::stringstream text;
  text << file.rdbuf();
  const std::string page = text.str();
  const size_t mark = page.find(kMark);
  ASSERT_NE(mark, std::string::npos) << kPage << " has lost the line\n" << kMark;
  const std::string made = made_page();
  const std::string_view found = std::string_view(page).substr(mark);
  const auto differs = std::ranges::mismatch(made, found);
  if (differs.in1 == made.end() && differs.in2 == found.end()) return;
  std::ofstream(kRenewed) << page.substr(0, mark) << made;
  const size_t line_begin = made.rfind('\n', size_t(differs.in1 - made.begin())) + 1;
  FAIL() << "docs/config.md is not what the table of keys says, first at\n  "
         << made.substr(line_begin, made.find('\n', line_begin) - line_begin) << "\nRenew it: cp " << kRenewed
         << " " << kPage;
}

}  // namespace
}  // namespace zeno::config
