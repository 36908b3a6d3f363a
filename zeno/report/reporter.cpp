#include "zeno/report/reporter.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/base/log.h"
#include "zeno/config/config_keys.h"
#include "zeno/report/page/report_html.h"

namespace zeno::report {
namespace {

ReportStep report_step(const StepRecord& r) {
  return {.step = r.step,
          .loss = r.loss,
          .grad_norm = r.grad_norm,
          .lr = r.lr,
          .tokens_per_s = r.tokens_per_s,
          .step_ms = r.step_ms,
          .exposed_ms = r.exposed_comm_ms,
          .skipped = r.skipped};
}

constexpr size_t kMostEvents = 200;  // in the report; the log has them all
constexpr size_t kMostEvals = 4096;

// Of every four neighbours the lowest and the highest stay; one that is no number only where all are.
void thin_out(std::vector<ReportEval>& evals) {
  constexpr double kFar = std::numeric_limits<double>::infinity();
  const auto loss_or = [](const ReportEval& eval, double other) {
    return std::isnan(eval.loss) ? other : eval.loss;
  };
  std::vector<ReportEval> kept;
  for (size_t i = 0; i < evals.size(); i += 4) {
    const auto first = evals.begin() + std::ptrdiff_t(i);
    const auto last = evals.begin() + std::ptrdiff_t(std::min(i + 4, evals.size()));
    const auto low = std::min_element(
        first, last, [&](const auto& a, const auto& b) { return loss_or(a, kFar) < loss_or(b, kFar); });
    const auto high = std::max_element(
        first, last, [&](const auto& a, const auto& b) { return loss_or(a, -kFar) < loss_or(b, -kFar); });
    kept.push_back(*std::min(low, high));
    if (low != high) kept.push_back(*std::max(low, high));
  }
  evals = std::move(kept);
}

// TensorBoard shows all files of a folder as one run: those of a run before this one go.
Path begin_events(const Path& folder, int64_t done) {
  if (done > 0 || !folder_exists(folder)) return folder;
  for (const std::string& name : list_folder(folder)) {
    if (name.starts_with("events.out.tfevents.")) remove_file(folder / name);
  }
  return folder;
}

}  // namespace

std::vector<ReportSetting> settings_of(const config::ParsedConfig& parsed) {
  std::vector<ReportSetting> settings;
  for (const config::ConfigKey& key : config::config_keys()) {
    const auto origin = parsed.origins.find(key.path);
    if (key.show == nullptr || origin == parsed.origins.end() || !config::applies_to(key, parsed.config))
      continue;
    settings.push_back({key.path, key.show(parsed.config), origin->second.text});
  }
  return settings;
}

Reporter::Reporter(const config::ParsedConfig& parsed, int64_t steps, int64_t done, ReportData data)
    : out_(parsed.config.run.out),
      step_(done),
      model_(parsed.config.run.model),
      metrics_(parsed.config.run.log.empty() ? out_ / "metrics.jsonl" : Path(parsed.config.run.log), done),
      csv_(out_ / "metrics.csv", done),
      tensorboard_(begin_events(out_ / "tensorboard", done)),
      progress_(STDERR_FILENO, steps, parsed.config.run.steps_per_print),
      data_(std::move(data)) {
  data_.command = parsed.command;
  // What they begin with may be waiting.
  keep(csv_.records(), [&] { csv_.records().flush(); });
  keep(tensorboard_.records(), [&] { tensorboard_.records().flush(); });
}

void Reporter::keep(RecordFile& file, const std::function<void()>& write) {
  const std::string name = file.path().string();
  try {
    write();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::io) throw;
    if (failing_.insert(&file).second)
      note(step_, ReportEvent::Kind::warning,
           fmt::format(
               "{}; training continues; missing records are written as soon as the file is writable again",
               error.what()));
    return;
  }
  if (failing_.erase(&file) == 0) return;
  const int64_t lost = file.take_lost();
  if (lost == 0)
    return note(step_, ReportEvent::Kind::note,
                fmt::format("[metrics] {} can be written again; no records were lost", name));
  note(step_, ReportEvent::Kind::warning,
       fmt::format("[metrics] {} can be written again; {} records up to step {} were lost", name, lost,
                   step_));
}

void Reporter::step(const StepRecord& record) {
  step_ = record.step;
  keep(metrics_.records(), [&] { metrics_.append(record); });
  keep(csv_.records(), [&] { csv_.append(record); });
  keep(tensorboard_.records(), [&] { tensorboard_.append(record); });
  progress_.update(record);
  data_.steps.add(report_step(record));
}

void Reporter::evaluation(const EvalRecord& record) {
  step_ = record.step;
  keep(metrics_.records(), [&] { metrics_.append(record); });
  keep(csv_.records(), [&] { csv_.append(record); });
  keep(tensorboard_.records(), [&] { tensorboard_.append(record); });
  if (data_.evals.size() == kMostEvals) thin_out(data_.evals);
  data_.evals.push_back({record.step, record.loss, record.perplexity, record.token_accuracy});
  progress_.finish();
  log_info(
      "evaluation after step {}: loss {:.4f}, perplexity {:.2f}, token accuracy {:.1f} %, {} tokens in "
      "{:.1f} s",
      record.step, record.loss, record.perplexity, record.token_accuracy * 100, record.tokens,
      record.ms / 1000);
}

void Reporter::note(int64_t step, ReportEvent::Kind kind, const std::string& text) {
  progress_.finish();
  const bool bad = kind == ReportEvent::Kind::warning || kind == ReportEvent::Kind::spike;
  log_line(bad ? LogLevel::warning : LogLevel::info, text);
  if (data_.events.size() == kMostEvents) {
    ++data_.more_events;
  } else {
    data_.events.push_back({step, kind, text});
  }
}

void Reporter::bad_step(const BadStepRecord& record) {
  keep(metrics_.records(), [&] { metrics_.append(record); });
  std::string text;
  if (record.kind == "spike") {
    text = fmt::format("step {}: the loss is {:.4f}, {:.1f} times the recent mean", record.step, record.loss,
                       record.loss / record.mean);
  } else {
    text = fmt::format("step {} skipped: loss {}", record.step, record.loss);
    if (record.first_bad) {
      // On a GPU the result comes one step late, when the gradients themselves are gone.
      const std::string& name = record.first_bad->name;
      text += fmt::format(", the gradient of {} is not finite (first found on rank {})",
                          name.empty() ? "some tensor" : name, record.first_bad->rank);
    }
  }
  note(record.step, record.kind == "spike" ? ReportEvent::Kind::spike : ReportEvent::Kind::warning,
       fmt::format("{}; its batch: {}", text, record.batch));
}

void Reporter::finish(const RunSummary& summary, std::vector<RankMemory> memory, Timeline timeline) {
  progress_.finish();
  finish_file(metrics_.records(), [&] {
    metrics_.finish({.weights_hash = summary.weights_hash,
                     .interrupted = summary.interrupted,
                     .stopped_early = summary.stopped_early,
                     .advice = summary.advice});
  });
  finish_file(csv_.records(), [&] { csv_.records().flush(); });
  finish_file(tensorboard_.records(), [&] { tensorboard_.records().flush(); });
  data_.memory = std::move(memory);
  data_.timeline = std::move(timeline);
  data_.timeline.step = summary.steps;
  data_.advice = summary.advice;
  data_.result = {.status = summary.interrupted     ? "interrupted"
                            : summary.stopped_early ? fmt::format("stopped early at step {}", summary.steps)
                                                    : "finished",
                  .weights_hash = fmt::format("{:016x}", summary.weights_hash),
                  .out_folder = summary.out,
                  .duration_s = summary.seconds,
                  .tokens = summary.num_tokens};
  const Path report = out_ / "report.html";
  std::string page = fmt::format("report: {}", report.string());
  try {
    write_report(report, data_);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::io) throw;
    log_warning("{}; the run has no report", error.what());
    page = "no report";
  }
  log_info("{}", describe(summary, model_));
  log_info("weights_hash {:016x}; {}", summary.weights_hash, page);
}

// There is no later: what a file lacks now it will lack.
void Reporter::finish_file(RecordFile& file, const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::io) throw;
    log_warning("{}; its last {} records are missing", error.what(), file.waiting() + file.take_lost());
    return;
  }
  keep(file, [] {});  // it may have been written again only now
}

}  // namespace zeno::report
