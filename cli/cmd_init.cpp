#include <CLI/CLI.hpp>

#include <memory>

#include "cli/commands.h"
#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/data/chat/presets.h"
#include "zeno/data/tokenizer.h"
#include "zeno/model/init.h"

namespace zeno::cli {
namespace {

struct InitFlags {
  model::InitOptions options;
  std::string arch = "llama", dtype = "fp32", out;
  bool tied = false, untied = false;
};

void run(InitFlags flags) {
  flags.options.arch = model::parse_arch(flags.arch);
  const auto dtype = parse_dtype(flags.dtype);
  require(dtype.has_value(), ErrorKind::usage, "[init] --dtype: got {}, expected fp32, bf16 or fp16",
          flags.dtype);
  flags.options.dtype = *dtype;
  if (flags.tied || flags.untied) flags.options.tied = flags.tied;
  model::init_folder(flags.options,
                     {data::byte_tokenizer_json(flags.options.vocab), data::preset_source("chatml").value()},
                     flags.out);
  log_info("wrote {} (train it: zeno train --model {} --data FILE --out DIR)", flags.out, flags.out);
}

}  // namespace

void add_init(CLI::App& app) {
  CLI::App* command = app.add_subcommand("init", "write a new model folder with random weights");
  auto flags = std::make_shared<InitFlags>();
  model::InitOptions& o = flags->options;
  command->add_option("--arch", flags->arch, model::supported_archs());
  command->add_option("--hidden", o.hidden, "hidden size");
  command->add_option("--layers", o.layers, "number of blocks");
  command->add_option("--heads", o.heads, "query heads");
  command->add_option("--kv-heads", o.kv_heads, "key/value heads; default: as many as heads");
  command->add_option("--head-dim", o.head_dim, "values per head; default: hidden / heads");
  command->add_option("--intermediate", o.intermediate,
                      "width of the feed-forward layer; default by architecture");
  command->add_option("--vocab", o.vocab, "tokens, at least 256 (bytes)");
  command->add_option("--max-positions", o.max_positions, "longest sequence");
  command->add_flag("--tied", flags->tied, "output projection = token embedding");
  command->add_flag("--untied", flags->untied, "an output projection of its own");
  command->add_option("--dtype", flags->dtype, "of the weights: fp32, bf16 or fp16");
  command->add_option("--seed", o.seed, "of the weights");
  command->add_flag("--overwrite", o.overwrite, "replace a model that is already there");
  command->add_option("--out", flags->out, "the new folder")->required();
  command->callback([flags] { run(*flags); });
}

}  // namespace zeno::cli
