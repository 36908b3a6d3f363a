#include "zeno/comm/flight/flight_part.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

namespace zeno::comm {
namespace {

std::string one_line(std::string_view text) {
  std::string line(text);
  std::ranges::replace(line, '\n', ' ');
  return line;
}

// Removes the first word of `text` and returns it.
std::string_view take_word(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

template <class T>
T number(std::string_view text) {
  T value{};
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

void add_line(FlightPart& part, std::string_view key, std::string_view value) {
  if (key == "job") part.job = value;
  if (key == "rank") part.rank = number<int>(value);
  if (key == "process") part.process = value;
  if (key == "time") part.time = value;
  if (key == "error") part.error = value;
  if (key == "failure") part.failure = value;
  if (key == "at") {
    FlightRecorder::Position at;
    at.started = number<uint64_t>(take_word(value));
    at.done = number<uint64_t>(take_word(value));
    at.seconds = std::chrono::milliseconds(number<int64_t>(take_word(value)));
    at.communicator = take_word(value);
    at.title = value;
    part.positions.push_back(std::move(at));
  }
  if (key == "seen") {
    const int rank = number<int>(take_word(value));
    part.seen[rank] = value;
  }
}

// The position of each rank on each communicator.
using Standing = std::map<std::string, std::map<int, FlightRecorder::Position>>;

Standing standing_of(const std::map<int, FlightPart>& parts) {
  Standing standing;
  for (const auto& [rank, part] : parts) {
    for (const FlightRecorder::Position& at : part.positions) standing[at.communicator][rank] = at;
  }
  return standing;
}

// One line for each operation in progress: which ranks are in it, and which have not reached it.
std::string describe_waits(const std::map<int, FlightPart>& parts, int size) {
  std::string text;
  for (const auto& [communicator, ranks] : standing_of(parts)) {
    std::map<uint64_t, std::vector<int>> waiting;  // by operation
    for (const auto& [rank, at] : ranks) {
      if (at.started > at.done) waiting[at.started].push_back(rank);
    }
    for (const auto& [operation, inside] : waiting) {
      std::vector<int> absent;
      for (int r = 0; r < size; ++r) {
        const auto found = ranks.find(r);
        if (found == ranks.end() || found->second.started < operation) absent.push_back(r);
      }
      text += fmt::format("  {} {} in {} (operation {} on '{}')", list_ranks(inside),
                          inside.size() == 1 ? "was" : "were", ranks.at(inside[0]).title, operation,
                          communicator);
      text +=
          absent.empty() ? "; all had arrived\n" : fmt::format("; {} had not arrived\n", list_ranks(absent));
    }
  }
  return text;
}

std::string describe_missing(int rank, const std::map<int, FlightPart>& parts) {
  std::string text = fmt::format("\nRank {}: no record\n", rank);
  for (const auto& [communicator, ranks] : standing_of(parts)) {
    uint64_t done = 0;
    for (const auto& [other, at] : ranks) done = std::max(done, at.done);
    if (done == 0) continue;
    text += fmt::format("  took part in operation {} on '{}', which others completed\n", done, communicator);
  }
  for (const auto& [other, part] : parts) {
    const auto seen = part.seen.find(rank);
    if (seen != part.seen.end()) text += fmt::format("  rank {} saw: {}\n", other, seen->second);
  }
  return text;
}

}  // namespace

std::string flight_title(std::string_view job) { return fmt::format("Flight recorder of job {}:", job); }

std::string describe(const FlightPart& part) {
  std::string text =
      fmt::format("\nRank {} ({})\n  {}  {}\n", part.rank, part.process, part.time, part.error);
  bool inside = false;
  for (const FlightRecorder::Position& at : part.positions) {
    if (at.started <= at.done) continue;
    inside = true;
    text += fmt::format("  in {} (operation {} on '{}') for {:.3f} s\n", at.title, at.started,
                        at.communicator, std::chrono::duration<double>(at.seconds).count());
  }
  if (!inside) text += "  in no operation\n";
  return text + part.operations;
}

std::string to_text(const FlightPart& part) {
  std::string text =
      fmt::format("job {}\nrank {}\nprocess {}\ntime {}\nerror {}\nfailure {}\n", part.job, part.rank,
                  part.process, part.time, one_line(part.error), one_line(part.failure));
  for (const FlightRecorder::Position& at : part.positions) {
    text += fmt::format("at {} {} {} {} {}\n", at.started, at.done, at.seconds.count(), at.communicator,
                        at.title);
  }
  for (const auto& [rank, what] : part.seen) text += fmt::format("seen {} {}\n", rank, one_line(what));
  return text + "operations\n" + part.operations;
}

std::optional<FlightPart> parse_flight_part(std::string_view text) {
  if (!text.starts_with("job ")) return std::nullopt;
  FlightPart part;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view key = take_word(line);
    if (key == "operations") {
      part.operations = text;
      return part;
    }
    add_line(part, key, line);
  }
  return std::nullopt;
}

std::string merge_flight_parts(const std::map<int, FlightPart>& parts, int size) {
  if (parts.empty()) return "";
  const FlightPart& first = parts.begin()->second;
  std::string text = fmt::format("{} {} of {} ranks\n\nWhat happened\n  {}  {}\n", flight_title(first.job),
                                 parts.size(), size, first.time, first.failure);
  text += describe_waits(parts, size);
  text += "\nTimes below are seconds since the start of the job.\n";
  for (int rank = 0; rank < size; ++rank) {
    const auto found = parts.find(rank);
    text += found == parts.end() ? describe_missing(rank, parts) : describe(found->second);
  }
  return text;
}

}  // namespace zeno::comm
