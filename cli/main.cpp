// zeno: the command line. Maps errors to one line and an exit code; everything else is in the library.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>

#include "cli/commands.h"
#include "cli/help_format.h"
#include "zeno/base/disk_watch.h"
#include "zeno/base/error.h"
#include "zeno/base/leave.h"
#include "zeno/base/leave_files.h"
#include "zeno/base/log.h"
#include "zeno/base/utf8.h"
#include "zeno/comm/failure.h"
#include "zeno/config/config_keys.h"

namespace {

// Checkpoints of many ranks have many files, and the usual limit of 1024 is one for programs of another time.
void allow_many_open_files() {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// What is written of a run (checkpoints, metrics, reports) is UTF-8 and names its folders.
void require_utf8(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    zeno::require(zeno::is_valid_utf8(argv[i]), zeno::ErrorKind::usage,
                  "argument {} ({}) is not UTF-8; rename the file or folder", i,
                  zeno::shortened(argv[i], 200));
}

// ", did you mean --model"; empty where nothing is near.
std::string nearest_flag(const CLI::App& command, const std::string& unknown) {
  const std::string name = unknown.substr(0, unknown.find('='));
  const auto distance = [&](const CLI::Option* option) {
    return zeno::config::edit_distance(option->get_name(), name);
  };
  const std::vector<const CLI::Option*> options = command.get_options();
  const auto nearest = std::ranges::min_element(options, {}, distance);
  const bool near = nearest != options.end() && distance(*nearest) <= 2;
  return near ? fmt::format(", did you mean {}", (*nearest)->get_name()) : "";
}

// "unknown command trian, did you mean train; see `zeno --help`"
std::string mistake_in(const CLI::App& app, const CLI::ParseError& error, const std::string& first) {
  std::string command = "zeno", unknown, near;
  for (const CLI::App* used : app.get_subcommands()) {
    command += " " + used->get_name();
    for (const std::string& word : used->remaining()) {
      if (!unknown.empty() || !word.starts_with('-')) continue;
      unknown = word;
      near = nearest_flag(*used, word);
    }
  }
  std::string text = error.what();
  if (error.get_exit_code() == int(CLI::ExitCodes::ExtrasError) && !unknown.empty())
    text = fmt::format("unknown flag {}{}", zeno::shortened(unknown, 60), near);
  if (app.get_subcommands().empty() && !first.empty()) {
    text =
        fmt::format("unknown {} {}", first.starts_with('-') ? "flag" : "command", zeno::shortened(first, 60));
    for (const CLI::App* known : app.get_subcommands({})) {
      if (zeno::config::edit_distance(known->get_name(), first) <= 2)
        text += fmt::format(", did you mean {}", known->get_name());
    }
  }
  return fmt::format("{}; see `{} --help`", text, command);
}

// Commands with ranks watch for themselves.
void watch_disks(const CLI::App& app, std::optional<zeno::DiskWatch>& watch) {
  if (!app.got_subcommand("train") && !app.got_subcommand("eval")) watch.emplace();
}

}  // namespace

int main(int argc, char** argv) {
  allow_many_open_files();
  std::optional<zeno::DiskWatch> watch;
  CLI::App app("Zeno trains and fine-tunes language models with ZeRO, without Python.", "zeno");
  app.require_subcommand(1);
  app.formatter(std::make_shared<zeno::cli::HelpFormat>());
  app.option_defaults()->always_capture_default();
  app.set_help_flag("-h,--help", "show this help and exit");
  app.set_version_flag("--version", "zeno " ZENO_VERSION, "show the version and exit");
  zeno::cli::add_train(app);
  zeno::cli::add_eval(app);
  zeno::cli::add_plan(app);
  zeno::cli::add_init(app);
  zeno::cli::add_inspect(app);
  zeno::cli::add_data(app);
  zeno::cli::add_demo(app);
  zeno::cli::add_generate(app);
  zeno::cli::add_export(app);
  zeno::cli::add_doctor(app);
  app.footer(
      "Start here: zeno demo, or zeno train --model DIR --data FILE --out DIR\n"
      "For the flags of a command: zeno COMMAND --help");
  app.parse_complete_callback([&] { watch_disks(app, watch); });
  try {
    require_utf8(argc, argv);
    app.parse(argc, argv);
    zeno::leave_files_behind();  // the lock of --out may be on a disk that has stopped answering since
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    zeno::leave(zeno::exit_code(zeno::ErrorKind::usage), mistake_in(app, error, argc > 1 ? argv[1] : ""));
  } catch (...) {
    const zeno::comm::Ending ending = zeno::comm::ending_of(std::current_exception());
    zeno::leave(zeno::exit_code(ending.kind), ending.tells ? ending.text : "");
  }
}
