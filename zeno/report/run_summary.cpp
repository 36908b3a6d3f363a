#include "zeno/report/run_summary.h"

#include <fmt/format.h>

#include "zeno/device/ledger.h"
#include "zeno/report/progress.h"

namespace zeno::report {
namespace {

std::string_view end_of(const RunSummary& s) {
  if (s.interrupted) return "interrupted";
  return s.stopped_early ? "stopped early: the evaluation no longer improves" : "done";
}

std::string evaluation_of(const RunSummary& s) {
  if (!s.last_eval) return "";
  std::string text =
      fmt::format("; evaluation loss {:.4f} (perplexity {:.2f}, token accuracy {:.1f} %)", s.last_eval->loss,
                  s.last_eval->perplexity, s.last_eval->token_accuracy * 100);
  if (s.best && s.best->step != s.last_eval->step) {
    text += fmt::format(", best {:.4f} at step {}", s.best->loss, s.best->step);
  }
  return text;
}

}  // namespace

std::string describe(const RunSummary& s, const std::string& base_model) {
  std::string text = fmt::format("{}: {} steps, {:.2f} epochs, loss {:.4f}{}.", end_of(s), s.steps, s.epochs,
                                 s.loss, evaluation_of(s));
  text += fmt::format(
      " {} tokens in {}, {} tokens/s; peak memory per rank {}; {:.2f} % of the time waiting for data.\n",
      s.num_tokens, format_duration(s.seconds),
      format_rate(s.seconds > 0 ? double(s.num_tokens) / s.seconds : 0), format_bytes(s.peak_bytes),
      s.data_wait_share() * 100);
  if (s.planned_step_s > 0 && s.step_s > 0)
    text += fmt::format("A step took {:.4g} s, {:.2f} of the planned {:.4g} s.\n", s.step_s,
                        s.step_s / s.planned_step_s, s.planned_step_s);
  const char* what = s.adapter ? "adapter" : "model";
  text += s.best && s.saved_step != s.steps
              ? fmt::format("{} holds the best {}, of step {}", s.out, what, s.saved_step)
              : fmt::format("{} holds the {} of step {}", s.out, what, s.saved_step);
  if (!s.last.empty()) text += fmt::format("; {} holds that of step {}", s.last, s.steps);
  text += s.adapter ? fmt::format(". Try it: zeno generate --model {} --adapter {} --chat", base_model, s.out)
                    : fmt::format(". Try it: zeno generate --model {} --chat", s.out);
  return s.advice.empty() ? text : fmt::format("{}\n{}", text, s.advice);
}

}  // namespace zeno::report
