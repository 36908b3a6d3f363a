#include "zeno/train/reporter.h"

#include <unistd.h>

#include <filesystem>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/train/config_keys.h"
#include "zeno/train/report_html.h"

namespace zeno::train {
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

// TensorBoard shows all files of a folder as one run: those of a run before this one go.
Path begin_events(const Path& folder, int64_t done) {
  if (done > 0 || !std::filesystem::exists(folder)) return folder;
  for (const std::string& name : list_folder(folder)) {
    if (name.starts_with("events.out.tfevents.")) remove_file(folder / name);
  }
  return folder;
}

}  // namespace

std::vector<ReportSetting> settings_of(const ParsedConfig& parsed) {
  std::vector<ReportSetting> settings;
  for (const ConfigKey& key : config_keys()) {
    const auto origin = parsed.origins.find(key.path);
    if (key.show == nullptr || origin == parsed.origins.end() || !applies_to(key, parsed.config)) continue;
    settings.push_back({key.path, key.show(parsed.config), origin->second.text});
  }
  return settings;
}

Reporter::Reporter(const ParsedConfig& parsed, int64_t steps, int64_t done, ReportData data)
    : out_(parsed.config.run.out),
      model_(parsed.config.run.model),
      metrics_(parsed.config.run.log.empty() ? out_ / "metrics.jsonl" : Path(parsed.config.run.log), done),
      csv_(out_ / "metrics.csv", done),
      tensorboard_(begin_events(out_ / "tensorboard", done)),
      progress_(STDERR_FILENO, steps, parsed.config.run.steps_per_print),
      data_(std::move(data)) {
  data_.command = parsed.command;
}

void Reporter::keep(const char* file, const std::function<void()>& write) {
  if (lost_.contains(file)) return;
  try {
    write();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::io) throw;
    lost_.insert(file);
    progress_.finish();
    log_warning("{}; training goes on without {}", error.what(), file);
  }
}

void Reporter::step(const StepRecord& record) {
  keep("metrics.jsonl", [&] { metrics_.append(record); });
  keep("metrics.csv", [&] { csv_.append(record); });
  keep("TensorBoard's events", [&] { tensorboard_.append(record); });
  progress_.update(record);
  data_.steps.push_back(report_step(record));
}

void Reporter::evaluation(const EvalRecord& record) {
  keep("metrics.jsonl", [&] { metrics_.append(record); });
  keep("metrics.csv", [&] { csv_.append(record); });
  keep("TensorBoard's events", [&] { tensorboard_.append(record); });
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
  data_.events.push_back({step, kind, text});
}

void Reporter::bad_step(const BadStepRecord& record) {
  keep("metrics.jsonl", [&] { metrics_.append(record); });
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
  keep("metrics.jsonl", [&] {
    metrics_.finish({.weights_hash = summary.weights_hash,
                     .interrupted = summary.interrupted,
                     .stopped_early = summary.stopped_early,
                     .advice = summary.advice});
  });
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
  keep("report.html", [&] { write_report(out_ / "report.html", data_); });
  log_info("{}", describe(summary, model_));
  log_info("weights_hash {:016x}; report: {}", summary.weights_hash, (out_ / "report.html").string());
}

}  // namespace zeno::train
