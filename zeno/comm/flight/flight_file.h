// The flight recorders of all ranks as one file that people read, written when a world fails: what happened,
// who waited where and who had not come, then each rank's last operations.
//
// Every rank writes its part beside the file, as flight-recorder.rank-0003.JOB.txt; the lowest rank that did
// puts the parts together. Ranks that are threads and ranks that are processes do the same, and nobody waits
// longer than a moment, neither for other ranks nor for the disk: a rank without a part is said to be
// missing, and a folder that does not respond gets no file. What an earlier job left is replaced. Thread
// rule: any thread may call.
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
  // Is there somewhere to write, and anybody to compare with?
  bool wanted() const noexcept;

  // This rank has failed, or learned that another did: writes its part and says where in the log, or puts the
  // last operations into the log where there is no file. Once; later calls do nothing.
  void tell(std::string_view error, const std::optional<Failure>& failure,
            const std::map<int, std::string>& seen = {}) noexcept;
  bool told() const { return told_; }
  // Writes the part unless it is there; for a rank that cannot do it itself.
  void write_part(std::string_view error, const std::optional<Failure>& failure,
                  const std::map<int, std::string>& seen = {}) noexcept;
  // Puts the parts together if this is the lowest rank that has one. Gives the others a moment to write
  // theirs, except those that are `gone`.
  void finish(const std::function<bool(int rank)>& gone) noexcept;

 private:
  const Place place_;
  const std::shared_ptr<FlightRecorder> recorder_;
  std::atomic<bool> told_{false}, written_{false};
};

// A name for a job that is just starting.
std::string new_job_name();

}  // namespace zeno::comm
