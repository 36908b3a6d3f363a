// The setting that a run should use: what fits is timed on the machine (timeline.h), the best is chosen, and
// the reasons are given. Nothing is allocated or run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/plan/plan_rows.h"
#include "zeno/plan/timeline.h"

namespace zeno::plan {

// fastest: most tokens per second, and of those that come close the simplest. largest_batch: most sequences
// per micro-batch. smallest: least device memory.
enum class Goal { fastest, largest_batch, smallest };
std::optional<Goal> parse_goal(std::string_view text);
std::string_view name_of(Goal goal);

// A setting with its batch, its bytes and its time.
struct Option {
  PlanRow row;
  int micro_batches = 1;
  zero::Order order = zero::Order::horizontal;
  StepTime time;
};
zero::EngineOptions with(const zero::EngineOptions& options, const Option& option);
// "--stage 2 --micro-batch 4 --grad-accum 8 --order vertical"
std::string flags_of(const Option& option);
// The same as a DeepSpeed config; what DeepSpeed has no word for is in its block "zeno". States on disk go to
// `nvme_path`.
std::string deepspeed_config(const Option& option, const zero::EngineOptions& options,
                             const std::string& nvme_path);

struct AdviceQuestion {
  PlanModel model;
  zero::EngineOptions options;  // options that are not searched stay as they are here
  Machine machine;
  int host = 0;           // ranks of one, where groups of ranks are searched (group_choices)
  PlanChoices choices;    // with the limits of a rank
  int64_t sequences = 0;  // of a step, over all ranks, to keep; 0: whatever is best
  Goal goal = Goal::fastest;
  bool any_order = true;  // of micro-batches; else that of the options
  // A model with twice as many blocks, to say what it would need; may be empty.
  std::function<nn::LayerList()> next_larger;
};

struct Advice {
  std::optional<Option> chosen;      // none: nothing fits
  std::vector<Option> tried;         // the best of each stage and home of states, best first
  std::vector<std::string> reasons;  // one line each
};
Advice advise(const AdviceQuestion& question);

}  // namespace zeno::plan
