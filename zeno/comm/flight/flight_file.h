// The flight recorders of all ranks in one readable file, written when a world fails: what happened, which
// ranks waited where and which had not arrived, then each rank's last operations.
//
// Every rank writes its part beside the file, as flight-recorder.rank-0003.JOB.txt; the lowest rank that has
// written one merges them. Threads and processes do the same. No rank waits longer than a moment for other
// ranks or for the disk: a rank without a part is reported as missing, and a folder that does not respond
// gets no file. Files of an earlier job are replaced. Thread rule: any thread may call.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "zeno/base/file.h"
#include "zeno/comm/failure.h"
#include "zeno/comm/flight/flight_recorder.h"

namespace zeno::comm {

class FlightFile {
 public:
  struct Place {
    Path folder;  // empty: no file
    std::string job;
    int rank = 0, size = 1;
  };
  FlightFile(Place place, std::shared_ptr<FlightRecorder> recorder);

  const std::shared_ptr<FlightRecorder>& recorder() const { return recorder_; }
  // Whether there is a folder to write to and more than one rank.
  bool wanted() const noexcept;

  // Called when this rank has failed or learned that another did. Writes the part and logs where it is, or
  // logs the last operations where there is no file. Later calls do nothing.
  void tell(std::string_view error, const std::optional<Failure>& failure,
            const std::map<int, std::string>& seen = {}) noexcept;
  bool told() const { return told_; }
  // Writes the part unless it exists already; for a rank that cannot do so itself.
  void write_part(std::string_view error, const std::optional<Failure>& failure,
                  const std::map<int, std::string>& seen = {}) noexcept;
  // Merges the parts if this is the lowest rank that has one. Gives the others a moment to write theirs,
  // except those that are `gone`.
  void finish(const std::function<bool(int rank)>& gone) noexcept;

 private:
  const Place place_;
  const std::shared_ptr<FlightRecorder> recorder_;
  std::atomic<bool> told_{false}, written_{false};
};

// A name for a new job.
std::string new_job_name();

}  // namespace zeno::comm
