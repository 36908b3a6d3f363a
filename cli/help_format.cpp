#include "cli/help_format.h"

#include <fmt/format.h>

#include <algorithm>

#include "zeno/config/flag_groups.h"

namespace zeno::cli {
namespace {

constexpr size_t kWidth = 100, kTextColumn = 30;

// Characters, not bytes.
size_t width_of(std::string_view text) {
  return size_t(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

// One entry: what stands on the left, then the text beside it, cut into lines between words.
std::string entry(const std::string& left, std::string_view text) {
  std::string out = "  " + left, line;
  const std::string indent(kTextColumn, ' ');
  if (2 + width_of(left) + 2 > kTextColumn)
    out += "\n" + indent;
  else
    out += std::string(kTextColumn - 2 - width_of(left), ' ');
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && kTextColumn + width_of(line) + 1 + width_of(word) > kWidth) {
      out += line + "\n" + indent;
      line.clear();
    }
    line += (line.empty() ? "" : " ") + std::string(word);
  }
  return out + line + "\n";
}

// "INT", and the choices behind it if there are any.
struct Type {
  std::string word, choices;
};

Type type_of(const CLI::Option& option) {
  const std::string name = option.get_type_name();
  if (name == "UINT") return {"INT", ""};
  if (name == "FLOAT") return {"NUMBER", ""};
  const size_t open = name.find(":{");
  if (open == std::string::npos) return {name, ""};
  std::string choices;
  for (const char c : name.substr(open + 2, name.find('}') - open - 2)) {
    if (c != ' ') choices += c;
    if (c == ',') choices += ' ';
  }
  return {name.substr(0, open), choices};
}

std::string left_of(const CLI::Option& option) {
  std::string text = option.get_name(option.get_positional(), true);
  // CLI11 writes "-h,--help" and "--auto,--no-auto{false}".
  if (const size_t value = text.find('{'); value != std::string::npos) text.resize(value);
  if (const size_t comma = text.find(','); comma != std::string::npos) text.insert(comma + 1, " ");
  if (option.get_items_expected_max() == 0 || option.get_positional()) return text;  // a switch
  const std::string word = type_of(option).word;
  text += option.get_expected_min() == 0 ? fmt::format(" [{}]", word) : " " + word;
  return option.get_items_expected_max() > 1 ? text + " ..." : text;
}

bool has_default(const CLI::Option& option) {
  const std::string text = option.get_default_str();
  return !text.empty() && text != "[]";
}

// "note [one of auto, cpu, cuda; default auto]"
std::string text_of(const CLI::Option& option) {
  const std::string choices = type_of(option).choices;
  std::string more = choices.empty() ? "" : "one of " + choices;
  const auto add = [&](const std::string& part) { more += (more.empty() ? "" : "; ") + part; };
  if (option.get_required() && !option.get_positional()) add("required");
  if (option.get_expected_min() > 0 && has_default(option)) add("default " + option.get_default_str());
  const std::string& note = option.get_description();
  return more.empty() ? note : fmt::format("{} [{}]", note, more);
}

std::string usage(const CLI::App& app, const std::string& name) {
  std::string text = "usage: " + name;
  if (!app.get_subcommands({}).empty()) return text + " COMMAND [flags]\n";
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional())
      text += option->get_required() ? " " + option->get_name(true)
                                     : fmt::format(" [{}]", option->get_name(true));
    else if (option->get_required())
      text += " " + left_of(*option);
  }
  return text + " [flags]\n";
}

template <typename Picks>
std::string section(const CLI::App& app, std::string_view title, Picks picks) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty() && picks(*option)) text += entry(left_of(*option), text_of(*option));
  }
  return text.empty() ? text : fmt::format("\n{}\n{}", title, text);
}

}  // namespace

std::string choice_type(const std::vector<std::string_view>& choices) {
  return fmt::format("NAME:{{{}}}", fmt::join(choices, ","));
}

std::string HelpFormat::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  std::string text = fmt::format("{}\n\n{}", app->get_description(), usage(*app, name));
  if (!app->get_subcommands({}).empty()) text += "\nCommands\n";
  for (const CLI::App* command : app->get_subcommands({}))
    text += entry(command->get_name(), command->get_description());
  text += section(*app, "Arguments", [](const CLI::Option& option) { return option.get_positional(); });
  bool hidden = false;
  for (const std::string& group : app->get_groups()) {
    const std::string flags = section(*app, group, [&](const CLI::Option& option) {
      return !option.get_positional() && option.get_group() == group;
    });
    const bool hide = group == config::kExpertFlags && mode != CLI::AppFormatMode::All;
    hidden = hidden || (hide && !flags.empty());
    if (!hide) text += flags;
  }
  if (hidden)
    text += fmt::format(
        "\n"
        "More flags, for experts: {} --help-all\n",
        name);
  const std::string footer = app->get_footer();
  return footer.empty() ? text : text + "\n" + footer + "\n";
}

}  // namespace zeno::cli
