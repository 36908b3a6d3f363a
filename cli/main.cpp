// zeno: the command line. Maps errors to one line and an exit code; everything else is in the library.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "cli/commands.h"
#include "zeno/base/error.h"
#include "zeno/base/log.h"

int main(int argc, char** argv) {
  CLI::App app("Zeno trains and fine-tunes language models with ZeRO, without Python.", "zeno");
  app.require_subcommand(1);
  zeno::cli::add_train(app);
  zeno::cli::add_eval(app);
  zeno::cli::add_plan(app);
  zeno::cli::add_init(app);
  zeno::cli::add_inspect(app);
  zeno::cli::add_demo(app);
  zeno::cli::add_generate(app);
  zeno::cli::add_export(app);
  zeno::cli::add_doctor(app);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    std::string command = "zeno", unknown;
    for (const CLI::App* used : app.get_subcommands()) {
      command += " " + used->get_name();
      for (const std::string& word : used->remaining()) {
        if (unknown.empty() && word.starts_with('-')) unknown = word;
      }
    }
    const bool extras = error.get_exit_code() == int(CLI::ExitCodes::ExtrasError) && !unknown.empty();
    zeno::log_error("{}; see `{} --help`", extras ? "unknown flag " + unknown : error.what(), command);
    return zeno::exit_code(zeno::ErrorKind::usage);
  } catch (const zeno::Error& error) {
    zeno::log_error("{}", error.what());
    // A rank that is stuck may have been left behind: nothing may be taken away under it.
    if (error.kind() == zeno::ErrorKind::peer) std::quick_exit(zeno::exit_code(error.kind()));
    return zeno::exit_code(error.kind());
  } catch (const std::exception& error) {
    zeno::log_error("internal: {}", error.what());
    return zeno::exit_code(zeno::ErrorKind::internal);
  }
}
