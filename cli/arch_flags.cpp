#include "cli/arch_flags.h"

#include <CLI/CLI.hpp>

namespace zeno::cli {

void ArchFlags::add_to(CLI::App& app) {
  app_ = &app;
  model::InitOptions& o = options_;
  app.add_option("--arch", arch_, "architecture")->type_name("NAME:{" + model::supported_archs() + "}");
  app.add_option("--hidden", o.hidden, "hidden size");
  app.add_option("--layers", o.layers, "number of blocks");
  app.add_option("--heads", o.heads, "attention heads");
  app.add_option("--kv-heads", o.kv_heads, "key/value heads; 0: as many as attention heads");
  app.add_option("--head-dim", o.head_dim, "size of a head; 0: hidden / heads");
  app.add_option("--intermediate", o.intermediate,
                 "width of the feed-forward layer; 0: the architecture's usual width");
  app.add_option("--vocab", o.vocab, "vocabulary size, at least 256 (bytes)");
  app.add_option("--max-positions", o.max_positions, "longest sequence in tokens");
  CLI::Option* tied = app.add_flag("--tied", tied_, "tie the output projection to the token embedding");
  app.add_flag("--untied", untied_, "use a separate output projection")->excludes(tied);
}

model::InitOptions ArchFlags::options() const {
  model::InitOptions options = options_;
  options.arch = model::parse_arch(arch_);
  if (tied_ || untied_) options.tied = tied_;
  return options;
}

bool ArchFlags::given(const char* flag) const { return app_->count(flag) > 0; }

std::string ArchFlags::first_given() const {
  for (const char* flag : {"--arch", "--hidden", "--layers", "--heads", "--kv-heads", "--head-dim",
                           "--intermediate", "--vocab", "--max-positions", "--tied", "--untied"})
    if (given(flag)) return flag;
  return {};
}

std::string ArchFlags::first_missing() const {
  for (const char* flag : {"--arch", "--hidden", "--layers", "--heads", "--vocab"})
    if (!given(flag)) return flag;
  return {};
}

}  // namespace zeno::cli
