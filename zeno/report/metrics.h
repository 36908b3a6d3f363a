// metrics.jsonl: one JSON object per optimizer step and per event (an evaluation, a step gone wrong), then
// one line that says how the run ended. Numbers read back exactly. A line is with the system before append()
// returns: what was reported survives the death of the process.
//
// MetricsFile owns its file; for one thread (rank 0's trainer). What a full disk does not take waits
// (record_file.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "zeno/report/record_file.h"

namespace zeno::report {

// Where the first non-finite gradient of a skipped step was found.
struct BadTensor {
  std::string name;
  int rank = 0;
};

struct StepRecord {
  int64_t step = 0;  // counted from 1
  double loss = 0;   // mean over the valid tokens of the global batch
  double grad_norm = 0;
  double lr = 0;
  double epoch = 0;         // passes over the data, this step included
  int64_t tokens = 0;       // that count in the loss, since the start of the run
  int64_t num_tokens = 0;   // the model has read, padding left out, since the start of the run
  double tokens_per_s = 0;  // read in this step
  double step_ms = 0;
  double data_wait_ms = 0;  // of step_ms, spent waiting for the batch
  double loss_scale = 1;
  bool skipped = false;
  std::optional<BadTensor> first_bad;     // of a skipped step
  std::optional<double> exposed_comm_ms;  // none: the step was not timed
  uint64_t bytes_gathered = 0;
  uint64_t bytes_reduced = 0;
  uint64_t peak_device = 0, peak_host = 0, peak_disk = 0;
};

struct EvalRecord {
  int64_t step = 0;  // optimizer steps before it; 0: before the first
  double epoch = 0;
  double loss = 0;  // mean over all valid tokens of the evaluation data
  double perplexity = 0;
  double token_accuracy = 0;
  int64_t tokens = 0;
  double ms = 0;
};

// What of an evaluation decides which was best.
struct Evaluation {
  int64_t step = 0;
  double loss = 0, accuracy = 0;
};

// A step whose loss or gradient was not finite, or whose loss stands out.
struct BadStepRecord {
  int64_t step = 0;
  std::string kind;  // "not_finite" or "spike"
  double loss = 0;
  double mean = 0;  // of the losses before
  std::optional<BadTensor> first_bad;
  std::string batch;  // what the step was trained on
};

// How a run ended.
struct DoneRecord {
  uint64_t weights_hash = 0;
  bool interrupted = false;    // by a signal
  bool stopped_early = false;  // by early stopping
  std::string advice;          // for people; may be empty
};

// One line without its end. Values that are not finite become null.
std::string to_json(const StepRecord& record);
std::string to_json(const EvalRecord& record);     // {"event":"eval",…}
std::string to_json(const BadStepRecord& record);  // {"event":"bad_step",…}
// {"event":"done","weights_hash":"<16 hex digits>"}, and what else is true
std::string to_json(const DoneRecord& record);

class MetricsFile {
 public:
  // Begins a new file; after `done` steps continues after the lines about these.
  explicit MetricsFile(const Path& path, int64_t done = 0);

  template <class Record>
  void append(const Record& record) {
    write_line(to_json(record));
  }
  // The last line; nothing may follow it.
  void finish(const DoneRecord& record);
  RecordFile& records() { return file_; }

 private:
  void write_line(std::string line);

  RecordFile file_;
  bool finished_ = false;
};

}  // namespace zeno::report
