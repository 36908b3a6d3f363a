// A TensorBoard event file, written without TensorFlow: TFRecord frames (length, checksum, data, checksum)
// around Event messages. `tensorboard --logdir FOLDER` shows it while it grows: a record is with the system
// before a call returns.
//
// Every object begins a new file in the folder, so a resumed run adds a file. Owns its file; for one thread
// (rank 0's trainer). What a full disk does not take waits (record_file.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "zeno/report/metrics.h"
#include "zeno/report/record_file.h"

namespace zeno::report {

struct TensorBoardScalar {
  std::string_view tag;  // "train/loss"
  double value = 0;      // kept as float: the format has no more
};

// Seconds since 1970, which is what events carry.
double wall_time_now();

class TensorBoardFile {
 public:
  // Makes the folder where it is missing.
  explicit TensorBoardFile(const Path& folder, double wall_time = wall_time_now());

  void scalar(std::string_view tag, int64_t step, double value, double wall_time = wall_time_now());
  void scalars(int64_t step, std::span<const TensorBoardScalar> values, double wall_time = wall_time_now());
  // Shown in the Text tab, as Markdown.
  void text(std::string_view tag, int64_t step, std::string_view markdown,
            double wall_time = wall_time_now());
  // All that a record knows, under the usual tags (docs/metrics.md).
  void append(const StepRecord& record, double wall_time = wall_time_now());
  void append(const EvalRecord& record, double wall_time = wall_time_now());

  const Path& path() const { return file_.path(); }
  RecordFile& records() { return file_; }

 private:
  RecordFile file_;
};

}  // namespace zeno::report
