// The flight recorders of all ranks as one file that people read, written when a world fails: what happened,
// who waited where and who had not come, then each rank's last operations.
//
// Every rank writes its part beside the file, as flight-recorder.rank-0003.JOB.txt; the lowest rank that did
// puts the parts together. Ranks that are threads and ranks that are processes do the same, and nobody waits
// longer than a moment: a rank without a part is said to be missing. What an earlier job left is replaced.
// Thread rule: any thread may call.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/comm/failure.h"
#include "zeno/comm/flight_recorder.h"

namespace zeno::comm {

// What one rank has to say.
struct FlightPart {
  std::string job;  // tells the parts of this job from those of an earlier one
  int rank = 0;
  std::string process;               // "process 4711 on node-3"
  std::string time, error, failure;  // error: of this rank; failure: of the world, as this rank knows it
  std::vector<FlightRecorder::Position> positions;
  std::map<int, std::string> seen;  // by rank: the last that this one saw of it
  std::string operations;           // a table
};
std::string to_text(const FlightPart& part);
// Nothing when the text is no part.
std::optional<FlightPart> parse_flight_part(std::string_view text);
// `parts` by rank; of `size` ranks.
std::string merge_flight_parts(const std::map<int, FlightPart>& parts, int size);

class FlightFile {
 public:
  struct Place {
    Path folder;  // empty: no file
    std::string job;
    int rank = 0, size = 1;
  };
  FlightFile(Place place, std::shared_ptr<FlightRecorder> recorder);

  const std::shared_ptr<FlightRecorder>& recorder() const { return recorder_; }
  Path path() const { return place_.folder / "flight-recorder.txt"; }
  // Is there somewhere to write, and anybody to compare with?
  bool wanted() const;

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
  Path part_path(int rank) const;
  std::string part_end() const;
  std::set<int> ranks_with_part() const;
  bool is_merged() const;
  void merge() const;
  // The file is there already: what this rank has to say comes at its end.
  void add_late_part() const;

  const Place place_;
  const std::shared_ptr<FlightRecorder> recorder_;
  std::atomic<bool> told_{false}, written_{false};
};

// A name for a job that is just starting.
std::string new_job_name();

}  // namespace zeno::comm
