// --help of every command: groups, types, choices and defaults from the table of keys, 100 columns.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/support/command.h"
#include "zeno/config/flag_groups.h"

namespace zeno::test {
namespace {

std::string help(const std::string& arguments) {
  const CommandResult result = run_command(kZeno + " " + arguments);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return result.output;
}

// The entry of a flag with its further lines on one line, blanks squeezed; empty: it is not shown.
std::string entry(const std::string& help, const std::string& flag) {
  std::istringstream lines(help);
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first, word;
    words >> first;
    if (first.ends_with(',')) first.pop_back();  // "--auto, --no-auto"
    const bool begins = line.starts_with("  ") && !line.starts_with("   ");
    if (!found.empty() && (begins || first.empty())) break;
    if (found.empty() && !(begins && first == flag)) continue;
    found += (found.empty() ? "" : " ") + first;
    while (words >> word) found += " " + word;
  }
  return found;
}

TEST(Help, ShowsEveryFlagOnceWithItsChoicesAndDefault) {
  const std::string all = help("train --help-all"), usual = help("train --help");
  for (const config::FlagGroup& group : config::flag_groups()) {
    const bool expert = group.title == config::kExpertFlags;
    EXPECT_NE(all.find("\n" + std::string(group.title) + "\n"), std::string::npos) << group.title;
    EXPECT_EQ(usual.find("\n" + std::string(group.title) + "\n") == std::string::npos, expert) << group.title;
    for (const config::ConfigKey* key : group.keys) {
      const std::string shown = entry(all, key->flag);
      ASSERT_NE(shown, "") << key->flag;
      EXPECT_EQ(entry(usual, key->flag), expert ? "" : shown);
      const std::string standard = config::show_default(*key);
      if (key->type != config::KeyType::boolean && !standard.empty()) {
        EXPECT_NE(shown.find("default " + standard), std::string::npos) << shown;
      }
      for (const std::string_view choice : key->choices)
        EXPECT_NE(shown.find(choice), std::string::npos) << shown;
    }
  }
  EXPECT_NE(usual.find("zeno train --help-all"), std::string::npos);
  EXPECT_NE(entry(usual, "--stage").find("--stage INT "), std::string::npos);
  EXPECT_NE(entry(usual, "--packing").find("one of auto, best_fit, none, wrapped; default auto"),
            std::string::npos);
}

TEST(Help, EndsWithExamplesWhoseFlagsExist) {
  const std::string text = help("train --help");
  std::istringstream lines(text.substr(text.find("\nExamples\n")));
  int commands = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    commands += word == "zeno";
    while (words >> word) {
      if (word.starts_with("--")) {
        EXPECT_NE(entry(text, word), "") << line;
      }
    }
  }
  EXPECT_EQ(commands, 5);
}

TEST(Help, OfEveryCommandIsAtMost100Columns) {
  const std::string first = help("--help");
  for (const char* command :
       {"", "train", "data", "eval", "plan", "init", "inspect", "demo", "generate", "export", "doctor"}) {
    const std::string name = command;
    if (!name.empty()) {
      EXPECT_NE(entry(first, name), "") << "zeno --help does not name " << name;
    }
    std::istringstream lines(help(name + " --help"));
    for (std::string line; std::getline(lines, line);) {
      const auto starts = [](char c) { return (uint8_t(c) & 0xc0) != 0x80; };
      EXPECT_LE(std::ranges::count_if(line, starts), 100) << line;
    }
  }
  const std::string generate = help("generate --help");
  EXPECT_NE(entry(generate, "--max-new-tokens").find("INT"), std::string::npos);
  EXPECT_NE(entry(generate, "--max-new-tokens").find("default 256"), std::string::npos);
  EXPECT_NE(entry(generate, "--device").find("one of auto, cpu, cuda; default auto"), std::string::npos);
  EXPECT_NE(entry(generate, "--model").find("required"), std::string::npos);
  EXPECT_EQ(entry(help("eval --help"), "--save-every"), "");  // no effect there
}

}  // namespace
}  // namespace zeno::test
