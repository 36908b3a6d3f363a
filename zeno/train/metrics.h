// metrics.jsonl: one JSON object per optimizer step, then one line that says how the run ended. Numbers read
// back exactly. A line is with the system before append() returns: what was reported survives the death of
// the process.
//
// MetricsFile owns its file; for one thread (rank 0's trainer).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "zeno/base/file.h"

namespace zeno::train {

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
  int64_t tokens = 0;  // since the start of the run
  double tokens_per_s = 0;
  double step_ms = 0;
  double loss_scale = 1;
  bool skipped = false;
  std::optional<BadTensor> first_bad;     // of a skipped step
  std::optional<double> exposed_comm_ms;  // not measured on a GPU without --trace
  uint64_t bytes_gathered = 0;
  uint64_t bytes_reduced = 0;
  uint64_t peak_device = 0, peak_host = 0, peak_disk = 0;
};

// One line without its end. Values that are not finite become null.
std::string to_json(const StepRecord& record);
// {"event":"done","weights_hash":"<16 hex digits>"}
std::string done_json(uint64_t weights_hash);

class MetricsFile {
 public:
  explicit MetricsFile(const Path& path);  // begins a new file

  void append(const StepRecord& record);
  // The last line; nothing may follow it.
  void finish(uint64_t weights_hash);

 private:
  void write_line(std::string line);

  File file_;
  uint64_t size_ = 0;
  bool finished_ = false;
};

}  // namespace zeno::train
