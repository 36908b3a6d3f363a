#include "zeno/comm/flight_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <thread>

#include "zeno/base/error.h"
#include "zeno/base/log.h"

namespace zeno::comm {
namespace {

using namespace std::chrono_literals;
constexpr std::string_view kPartStart = "flight-recorder.rank-";
constexpr uint64_t kLongest = 1 << 30;

bool is_part(std::string_view name) { return name.starts_with(kPartStart) && name.ends_with(".txt"); }

// How the file of a job begins.
std::string title_of(std::string_view job) { return fmt::format("Flight recorder of job {}:", job); }

std::string one_line(std::string_view text) {
  std::string line(text);
  std::ranges::replace(line, '\n', ' ');
  return line;
}

std::string time_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm local{};
  localtime_r(&seconds, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &local);
  return fmt::format("{}.{:03}", text.data(), ms);
}

std::string this_process() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on {}", getpid(), host.data());
}

// The first word of `text`, which loses it.
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

// Where each rank stands on each communicator.
using Standing = std::map<std::string, std::map<int, FlightRecorder::Position>>;

Standing standing_of(const std::map<int, FlightPart>& parts) {
  Standing standing;
  for (const auto& [rank, part] : parts) {
    for (const FlightRecorder::Position& at : part.positions) standing[at.communicator][rank] = at;
  }
  return standing;
}

// One line for each operation that somebody is in: who, and who has not come to it.
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
      text += absent.empty() ? "; all had come\n" : fmt::format("; {} had not come\n", list_ranks(absent));
    }
  }
  return text;
}

std::string describe_missing(int rank, const std::map<int, FlightPart>& parts) {
  std::string text = fmt::format("\nRank {}: no word from it\n", rank);
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

std::string describe_rank(const FlightPart& part) {
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

}  // namespace

std::string new_job_name() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("{}-{}", getpid(), std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
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
  std::string text = fmt::format("{} {} of {} ranks\n\nWhat happened\n  {}  {}\n", title_of(first.job),
                                 parts.size(), size, first.time, first.failure);
  text += describe_waits(parts, size);
  text += "\nTimes below are seconds since the start of the job.\n";
  for (int rank = 0; rank < size; ++rank) {
    const auto found = parts.find(rank);
    text += found == parts.end() ? describe_missing(rank, parts) : describe_rank(found->second);
  }
  return text;
}

FlightFile::FlightFile(Place place, std::shared_ptr<FlightRecorder> recorder)
    : place_(std::move(place)), recorder_(std::move(recorder)) {}

bool FlightFile::wanted() const {
  std::error_code error;
  return place_.size > 1 && !place_.folder.empty() && std::filesystem::is_directory(place_.folder, error);
}

Path FlightFile::part_path(int rank) const {
  return place_.folder / fmt::format("{}{:04}{}", kPartStart, rank, part_end());
}

std::string FlightFile::part_end() const { return fmt::format(".{}.txt", place_.job); }

void FlightFile::tell(std::string_view error, const std::optional<Failure>& failure,
                      const std::map<int, std::string>& seen) noexcept {
  if (told_.exchange(true)) return;
  try {
    if (wanted()) {
      log_warning("{}; the last operations of all ranks: {}", error, path().string());
      write_part(error, failure, seen);
    } else {
      constexpr size_t kFew = 12;
      log_warning("{}\nlast operations of this rank:\n{}", error, recorder_->dump(kFew));
    }
  } catch (...) {  // the log is a courtesy; the error itself is on its way
  }
}

void FlightFile::write_part(std::string_view error, const std::optional<Failure>& failure,
                            const std::map<int, std::string>& seen) noexcept {
  if (written_.exchange(true) || !wanted()) return;
  try {
    FlightPart part{.job = place_.job,
                    .rank = place_.rank,
                    .process = this_process(),
                    .time = time_now(),
                    .error = std::string(error),
                    .failure = failure ? text_of(*failure) : std::string(error),
                    .positions = recorder_->positions(),
                    .seen = seen,
                    .operations = recorder_->dump()};
    replace_file(part_path(place_.rank), to_text(part));
  } catch (const std::exception& problem) {
    log_warning("[comm] the flight record is not written: {}", problem.what());
  }
}

std::set<int> FlightFile::ranks_with_part() const {
  std::set<int> ranks;
  for (const std::string& name : list_folder(place_.folder)) {
    if (!is_part(name) || !name.ends_with(part_end())) continue;
    ranks.insert(number<int>(std::string_view(name).substr(kPartStart.size())));
  }
  return ranks;
}

bool FlightFile::is_merged() const {
  if (!file_exists(path())) return false;
  const File file = File::open(path());
  std::string start(std::min<uint64_t>(file.size(), title_of(place_.job).size()), 0);
  file.read_at(start.data(), start.size(), 0);
  return start == title_of(place_.job);
}

void FlightFile::merge() const {
  std::map<int, FlightPart> parts;
  std::set<int> ranks;
  do {  // again when a part has come in the meantime
    ranks = ranks_with_part();
    for (const int rank : ranks) {
      if (std::optional<FlightPart> part = parse_flight_part(read_file(part_path(rank), kLongest))) {
        parts[rank] = std::move(*part);
      }
    }
    replace_file(path(), merge_flight_parts(parts, place_.size));
  } while (ranks_with_part().size() > ranks.size());
  for (const std::string& name : list_folder(place_.folder)) {
    if (is_part(name)) remove_file(place_.folder / name);  // also what an earlier job left
  }
}

void FlightFile::add_late_part() const {
  if (!file_exists(part_path(place_.rank))) return;
  const std::optional<FlightPart> part = parse_flight_part(read_file(part_path(place_.rank), kLongest));
  if (!part) return;
  replace_file(path(), read_file(path(), kLongest) + "\nCame later:\n" + describe_rank(*part));
  remove_file(part_path(place_.rank));
}

void FlightFile::finish(const std::function<bool(int rank)>& gone) noexcept {
  // Launchers kill what is left of a job about a second after the first process has gone.
  constexpr auto kMoment = 500ms, kStep = 10ms;
  if (!written_ || !wanted()) return;
  try {
    for (auto waited = 0ms; waited <= kMoment; waited += kStep) {
      if (is_merged()) return add_late_part();
      const std::set<int> there = ranks_with_part();
      if (there.empty() || *there.begin() < place_.rank) return;
      bool settled = true;
      for (int rank = 0; rank < place_.size; ++rank)
        settled = settled && (there.contains(rank) || gone(rank));
      if (settled) break;
      std::this_thread::sleep_for(kStep);
    }
    merge();
  } catch (const std::exception& problem) {
    log_warning("[comm] the flight records are not put together: {}", problem.what());
  }
}

}  // namespace zeno::comm
