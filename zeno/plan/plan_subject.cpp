#include "cli/plan_subject.h"

#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/base/quantity.h"
#include "zeno/base/utf8.h"
#include "zeno/model/family.h"
#include "zeno/plan/estimate.h"

namespace zeno::cli {
namespace {

// A model that nobody has yet is taken to be made for the sequences that are asked for.
model::ModelConfig described_model(model::InitOptions options, bool positions_given, int64_t seq_len) {
  if (!positions_given) options.max_positions = std::max(options.max_positions, seq_len);
  return model::make_config(options);
}

double checked_params(const std::string& text) {
  const std::optional<double> params = parse_count(text);
  require(params && *params >= 1 && *params <= model::kMaxParameters, ErrorKind::usage,
          "[plan] --params: got '{}', expected a number of parameters up to {:.0g}, such as 7.5e9 or 7.5B",
          shortened(text, 40), model::kMaxParameters);
  return *params;
}

}  // namespace

PlanSubject plan_subject(const config::ParsedConfig& parsed, const ArchFlags& arch,
                         const std::string& params) {
  const config::RunConfig& run = parsed.config.run;
  const std::string shape = arch.first_given();
  const int given = int(!run.model.empty()) + int(!shape.empty()) + int(!params.empty());
  require(given > 0, ErrorKind::usage,
          "[plan] model: got none, expected --model DIR, --arch llama --hidden … or --params 7.5e9");
  require(given == 1, ErrorKind::usage,
          "[plan] model: got {}, expected one of --model, --arch and --params; leave the others out",
          run.model.empty() ? fmt::format("--params and {}", shape)
                            : fmt::format("--model and {}", shape.empty() ? "--params" : shape));
  if (!run.model.empty()) return {model::load_config(run.model), {}, false};
  if (!params.empty()) {
    require(parsed.config.lora.rank == 0 && parsed.config.lora.adapter.empty(), ErrorKind::usage,
            "[plan] adapters: got only --params, expected the shape they go on; use --model or --arch");
    const double count = checked_params(params);
    return {described_model(plan::shape_of_size(count), false, run.seq_len), count, true};
  }
  const std::string missing = arch.first_missing();
  require(missing.empty(), ErrorKind::usage,
          "[plan] architecture: got {} without {}, expected --arch, --hidden, --layers, --heads and --vocab",
          shape, missing);
  return {described_model(arch.options(), arch.given("--max-positions"), run.seq_len), {}, true};
}

}  // namespace zeno::cli
