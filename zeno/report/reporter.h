// What rank 0 of a run shows and writes as it goes: progress, metrics.jsonl, metrics.csv, TensorBoard events,
// and report.html at the end. Other ranks have none. Memory is bounded for a run of any length. For one
// thread.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "zeno/config/config_parser.h"
#include "zeno/report/csv_file.h"
#include "zeno/report/metrics.h"
#include "zeno/report/page/report_data.h"
#include "zeno/report/progress.h"
#include "zeno/report/run_summary.h"
#include "zeno/report/tensorboard_file.h"

namespace zeno::report {

class Reporter {
 public:
  // `data` has what is known before the first step. A run resumed after `done` steps appends to the files of
  // the previous run, from that step on.
  Reporter(const config::ParsedConfig& parsed, int64_t steps, int64_t done, ReportData data);

  void step(const StepRecord& record);
  void evaluation(const EvalRecord& record);
  // Something people should read: logged under the progress line, and an event of the report.
  void note(int64_t step, ReportEvent::Kind kind, const std::string& text);
  void bad_step(const BadStepRecord& record);
  // The last line of the metrics, the report and the summary. `memory` is that of all ranks.
  void finish(const RunSummary& summary, std::vector<RankMemory> memory, Timeline timeline);

 private:
  // A file that cannot be written costs the run its record, not its result. Said once; what is missing is
  // written as soon as that works again, which is said too.
  void keep(RecordFile& file, const std::function<void()>& write);
  void finish_file(RecordFile& file, const std::function<void()>& write);

  Path out_;
  int64_t step_;  // the last one
  std::string model_;
  std::set<const RecordFile*> failing_;  // could not be written when last tried
  MetricsFile metrics_;
  CsvFile csv_;
  TensorBoardFile tensorboard_;
  Progress progress_;
  ReportData data_;
};

// Settings that are not defaults, with where they came from.
std::vector<ReportSetting> settings_of(const config::ParsedConfig& parsed);

}  // namespace zeno::report
