// What one rank has to say when a world fails, and the text that all of them make. A part is a file of its
// own until they are put together (flight_file.h). Plain values; no thread rule.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/comm/flight/flight_recorder.h"

namespace zeno::comm {

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
// Empty when the text is not a part.
std::optional<FlightPart> parse_flight_part(std::string_view text);
// `parts` by rank; of `size` ranks.
std::string merge_flight_parts(const std::map<int, FlightPart>& parts, int size);
// How that begins.
std::string flight_title(std::string_view job);
// One rank's paragraph of it.
std::string describe(const FlightPart& part);

}  // namespace zeno::comm
