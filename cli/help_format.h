// How --help looks, for every command: groups in the order in which their first flag was added, one line per
// flag with its type, choices and default, at most 100 columns. The choices of an option are in its type
// name, as CLI11 writes them: "NAME:{auto,cpu,cuda}". Stateless; the application owns it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace zeno::cli {

class HelpFormat : public CLI::FormatterBase {
 public:
  // AppFormatMode::All (--help-all) shows the group of expert flags too.
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

// "NAME:{auto,cpu,cuda}", for CLI::Option::type_name.
std::string choice_type(const std::vector<std::string_view>& choices);

}  // namespace zeno::cli
