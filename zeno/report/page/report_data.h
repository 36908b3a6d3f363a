// What report.html shows, as plain values: a run fills it in as it goes, report_html.h draws it. Nothing here
// knows the engine; report_memory.h and report_timeline.h turn a Ledger and the times of a step into these.
// Whatever a run does not know stays empty, and its part of the page is left out.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "zeno/device/memory.h"
#include "zeno/report/step_series.h"

namespace zeno::report {

struct ReportSetting {
  std::string key, value, source;  // "lr", "3e-4", "default" | "ds.json:12" | "--lr" | …
};

struct ReportEval {
  int64_t step = 0;
  double loss = 0, perplexity = 0;
  std::optional<double> token_accuracy;  // 0 … 1
};

struct MemoryBytes {
  uint64_t planned = 0, peak = 0;
};

// One rank's memory: the plan before the first step, and the peak in use.
struct RankMemory {
  std::array<std::array<MemoryBytes, kPurposes>, kTiers.size()> by_purpose{};
  std::array<MemoryBytes, kTiers.size()> total{};  // peaks of purposes need not coincide: not the sum
};

// One step of one rank. Times count from its beginning.
struct TimelineSpan {
  std::string lane;  // "compute", "gather", "reduce"
  std::string name;  // "forward blocks.3"
  double begin_ms = 0, end_ms = 0;
};
struct Timeline {
  int rank = 0;
  int64_t step = 0;                 // 0: not said
  std::vector<std::string> lanes;   // from top to bottom; the first one computes
  std::vector<TimelineSpan> spans;  // by lane, then by time
  std::vector<TimelineSpan> waits;  // where computation stood still for another lane: exposed communication
  double duration_ms = 0;

  double exposed_ms() const {
    double sum = 0;
    for (const TimelineSpan& wait : waits) sum += wait.end_ms - wait.begin_ms;
    return sum;
  }
};

struct ReportEvent {
  enum class Kind { note, checkpoint, warning, spike, early_stop };
  int64_t step = 0;
  Kind kind = Kind::note;
  std::string text;
};

struct ReportResult {
  std::string status = "finished";  // "finished", "stopped early at step 120", "interrupted"
  std::string weights_hash, out_folder;
  double duration_s = 0;
  int64_t tokens = 0;
};

struct ReportData {
  std::string title;    // "llama-tiny on answers.jsonl"
  std::string command;  // as it was typed
  std::string model;    // "llama, 1.1 B parameters, 22 layers"
  std::string machine;  // "4 ranks on CPU, ZeRO stage 3, bf16"
  std::string made;     // "2025-11-15 15:04"
  std::vector<ReportSetting> settings;
  StepSeries steps;
  std::vector<ReportEval> evals;
  std::vector<RankMemory> memory;  // by rank
  uint64_t memory_limit = 0;       // device bytes a rank may use; 0: none known
  Timeline timeline;
  std::vector<ReportEvent> events;
  int64_t more_events = 0;  // that are not kept
  ReportResult result;
  std::string advice;  // one paragraph
};

}  // namespace zeno::report
