#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/run_flags.h"
#include "zeno/base/log.h"
#include "zeno/comm/world.h"
#include "zeno/train/trainer.h"

namespace zeno::cli {

void add_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "train or fine-tune the model of a folder");
  auto flags = std::make_shared<RunFlags>();
  auto print_only = std::make_shared<bool>(false);
  flags->add_to(*command);
  command->add_flag("--print-config", *print_only,
                    "show the effective values and where each came from, then stop");
  command->callback([flags, print_only] {
    set_log_rank(comm::launch_info().rank);  // one process of many: rank 0 speaks for all
    const train::ParsedConfig parsed = flags->parse();
    if (*print_only) {
      fmt::print("{}", train::print_config(parsed));
      return;
    }
    train::train(parsed);
  });
}

}  // namespace zeno::cli
