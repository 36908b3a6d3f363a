#include <CLI/CLI.hpp>

#include <memory>

#include "cli/arch_flags.h"
#include "cli/commands.h"
#include "cli/number_checks.h"
#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/data/chat/presets.h"
#include "zeno/data/tokenizer.h"
#include "zeno/model/init.h"

namespace zeno::cli {
namespace {

struct InitFlags {
  ArchFlags arch;
  std::string dtype = "fp32", out;
  uint64_t seed = 0;
  bool overwrite = false;
};

void run(const InitFlags& flags) {
  model::InitOptions options = flags.arch.options();
  const auto dtype = parse_dtype(flags.dtype);
  require(dtype.has_value(), ErrorKind::usage, "[init] --dtype: got {}, expected fp32, bf16 or fp16",
          flags.dtype);
  options.dtype = *dtype;
  options.seed = flags.seed;
  options.overwrite = flags.overwrite;
  model::init_folder(
      options, {data::byte_tokenizer_json(options.vocab), data::preset_source("chatml").value()}, flags.out);
  log_info("wrote {} (train it: zeno train --model {} --data FILE --out DIR)", flags.out, flags.out);
}

}  // namespace

void add_init(CLI::App& app) {
  CLI::App* command = app.add_subcommand("init", "make a new model folder with random weights");
  auto flags = std::make_shared<InitFlags>();
  flags->arch.add_to(*command);
  command->add_option("--dtype", flags->dtype, "dtype of the weights")->type_name("NAME:{fp32,bf16,fp16}");
  command->add_option("--seed", flags->seed, "seed for the weights")->check(not_negative());
  command->add_flag("--overwrite", flags->overwrite, "replace an existing model");
  command->add_option("--out", flags->out, "folder to create")->type_name("DIR")->required();
  command->callback([flags] { run(*flags); });
}

}  // namespace zeno::cli
