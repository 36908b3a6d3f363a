// metrics.csv: what metrics.jsonl says about steps and evaluations, as a table for spreadsheets and data
// frames. One header line; numbers read back exactly; what a row does not know is an empty cell. A line is
// with the system before append() returns.
//
// CsvFile owns its file; for one thread (rank 0's trainer). What a full disk does not take waits
// (record_file.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "zeno/report/metrics.h"
#include "zeno/report/record_file.h"

namespace zeno::report {

// Lines without their end. Values that are not finite are written NaN, Inf and -Inf.
std::string csv_header();
std::string to_csv(const StepRecord& record);
std::string to_csv(const EvalRecord& record);
// In quotes where it has to be.
std::string csv_cell(std::string_view text);

class CsvFile {
 public:
  // Begins a new file with its header; after `done` steps continues after the rows about these.
  explicit CsvFile(const Path& path, int64_t done = 0);

  template <class Record>
  void append(const Record& record) {
    file_.append(to_csv(record) + '\n');
  }
  RecordFile& records() { return file_; }

 private:
  RecordFile file_;
};

}  // namespace zeno::report
