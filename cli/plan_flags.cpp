#include "cli/plan_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "zeno/base/error.h"
#include "zeno/base/quantity.h"
#include "zeno/base/utf8.h"
#include "zeno/model/family.h"

namespace zeno::cli {
namespace {

double checked_params(const std::string& text) {
  const std::optional<double> params = parse_count(text);
  require(params && *params >= 1 && *params <= model::kMaxParameters, ErrorKind::usage,
          "[plan] --params: got '{}', expected a number of parameters up to {:.0g}, such as 7.5e9 or 7.5B",
          shortened(text, 40), model::kMaxParameters);
  return *params;
}

plan::PlanSubject subject_of(const config::ParsedConfig& parsed, const ArchFlags& arch,
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
  if (!run.model.empty()) return plan::subject_of_folder(run.model);
  if (!params.empty()) {
    require(parsed.config.lora.rank == 0 && parsed.config.lora.adapter.empty(), ErrorKind::usage,
            "[plan] adapters: got only --params, expected the shape of their model; use --model or --arch");
    return plan::subject_of_size(checked_params(params), run.seq_len,
                                 std::max<int64_t>(1, parsed.config.parallel.context));
  }
  const std::string missing = arch.first_missing();
  require(missing.empty(), ErrorKind::usage,
          "[plan] architecture: got {} without {}, expected --arch, --hidden, --layers, --heads and --vocab",
          shape, missing);
  return plan::subject_of_shape(arch.options(), arch.given("--max-positions"), run.seq_len);
}

}  // namespace

plan::PlanQuestion question_of(const PlanFlags& flags) {
  config::ParsedConfig parsed = flags.run.parse();
  require(!parsed.given("zeno.ranks") || parsed.config.run.ranks >= 1, ErrorKind::usage,
          "[plan] --ranks: got {}, expected at least 1", parsed.config.run.ranks);
  plan::PlanSubject subject = subject_of(parsed, flags.arch, flags.params);
  return plan::make_question(std::move(parsed), std::move(subject), flags.place);
}

}  // namespace zeno::cli
