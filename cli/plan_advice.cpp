#include "cli/plan_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/device/ledger.h"
#include "zeno/plan/advice.h"

namespace zeno::cli {
namespace {

constexpr const char* kNoFolder = "FOLDER";

std::string nvme_path(const plan::PlanQuestion& q) {
  const std::string& path = q.parsed.config.zero.offload_optimizer.nvme_path;
  return path.empty() ? kNoFolder : path;
}

plan::Goal goal_of(const std::string& text) {
  const std::optional<plan::Goal> goal = plan::parse_goal(text);
  require(goal.has_value(), ErrorKind::usage,
          "[plan] --goal: got {}, expected fastest, largest-batch or smallest", text);
  return *goal;
}

// What starts the run; with a config it says nothing twice.
std::string command_of(const plan::PlanQuestion& q, const PlanFlags& flags, const plan::Option& option) {
  const config::RunConfig& run = q.parsed.config.run;
  std::string text = q.mesh.ranks > q.mesh.ranks_per_host
                         ? fmt::format("mpirun -n {} zeno train", q.mesh.ranks)
                         : "zeno train";
  text += fmt::format(" --model {}", run.model.empty() ? "DIR" : run.model);
  if (flags.write_config.empty()) {
    text +=
        fmt::format(" --no-auto {} --dtype {}", plan::flags_of(option), name_of(q.options.policy.compute));
    if (q.mesh.pipe > 1) text += fmt::format(" --pipe {}", q.mesh.pipe);
    if (q.mesh.context > 1) text += fmt::format(" --context {}", q.mesh.context);
    const std::string folder = fmt::format(" --nvme-path {}", nvme_path(q));
    if (option.row.bytes.total(Tier::disk) > 0) text += folder;
  } else {
    text += fmt::format(" --config {}", flags.write_config);
  }
  if (q.mesh.ranks > 1 && q.mesh.ranks <= q.mesh.ranks_per_host)
    text += fmt::format(" --ranks {}", q.mesh.ranks);
  return text + fmt::format(" --seq-len {} --data FILE --out DIR", q.options.shape.seq * q.mesh.context);
}

nlohmann::ordered_json as_json(const plan::Option& option) {
  nlohmann::ordered_json json;
  json["flags"] = plan::flags_of(option);
  json["stage"] = option.row.setting.stage;
  json["micro_batch"] = option.row.setting.micro_batch;
  json["grad_accum"] = option.micro_batches;
  json["step_seconds"] = option.time.step_s;
  json["tokens_per_s"] = option.time.tokens_per_s;
  for (Tier tier : kTiers) json["bytes"][std::string(name_of(tier))] = option.row.bytes.total(tier);
  return json;
}

void print_json(const plan::Advice& advice, const std::string& command) {
  nlohmann::ordered_json json;
  if (advice.chosen) {
    json["chosen"] = as_json(*advice.chosen);
    json["command"] = command;
  }
  for (const plan::Option& option : advice.tried) json["tried"].push_back(as_json(option));
  json["reasons"] = advice.reasons;
  fmt::print("{}\n", json.dump(2));
}

}  // namespace

void show_advice(const plan::PlanQuestion& q, const PlanFlags& flags) {
  const plan::AdviceQuestion question = plan::advice_question(q, goal_of(flags.goal));
  const plan::Advice advice = plan::advise(question);
  std::string command;
  if (advice.chosen) {
    command = command_of(q, flags, *advice.chosen);
    if (!flags.write_config.empty())
      replace_file(flags.write_config,
                   plan::deepspeed_config(*advice.chosen, question.options, nvme_path(q)));
  }
  if (flags.json) return print_json(advice, command);
  if (advice.chosen) {
    const plan::PlanRow& row = advice.chosen->row;
    fmt::print(
        "{} on {}, {} rank{}: {}\n"
        "  {:.0f} tokens/s; device {}, host {}, disk {} per rank\n",
        plan::name_of(question.goal), question.machine.name, q.mesh.ranks, q.mesh.ranks == 1 ? "" : "s",
        plan::flags_of(*advice.chosen), advice.chosen->time.tokens_per_s,
        format_bytes(row.bytes.total(Tier::device)), format_bytes(row.bytes.total(Tier::host)),
        format_bytes(row.bytes.total(Tier::disk)));
  } else {
    fmt::print("nothing fits on {}, {} rank{}\n", question.machine.name, q.mesh.ranks,
               q.mesh.ranks == 1 ? "" : "s");
  }
  for (const std::string& reason : advice.reasons) fmt::print("  {}\n", reason);
  if (advice.chosen) fmt::print("run it: {}\n", command);
}

}  // namespace zeno::cli
