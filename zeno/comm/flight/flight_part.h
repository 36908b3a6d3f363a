// What one rank reports when a world fails, and the text made from the reports of all. A part is a separate
// file until the parts are merged (flight_file.h). Plain values; no thread rule.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/comm/flight/flight_recorder.h"

namespace zeno::comm {

struct FlightPart {
  std::string job;  // distinguishes the parts of this job from those of an earlier one
  int rank = 0;
  std::string process;               // "process 4711 on node-3"
  std::string time, error, failure;  // error: of this rank; failure: of the world, as this rank knows it
  std::vector<FlightRecorder::Position> positions;
  std::map<int, std::string> seen;  // by rank: the last operation that this one saw of it
  std::string operations;           // a table
};
std::string to_text(const FlightPart& part);
// Returns nothing when the text is not a part.
std::optional<FlightPart> parse_flight_part(std::string_view text);
// `parts` are by rank; the world has `size` ranks.
std::string merge_flight_parts(const std::map<int, FlightPart>& parts, int size);
// The first line of the merged text.
std::string flight_title(std::string_view job);
// One rank's paragraph of the merged text.
std::string describe(const FlightPart& part);

}  // namespace zeno::comm
