#include "zeno/comm/flight/flight_file.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <set>
#include <thread>

#include "zeno/base/error.h"
#include "zeno/base/host.h"
#include "zeno/base/log.h"
#include "zeno/base/within.h"
#include "zeno/comm/flight/flight_part.h"

namespace zeno::comm {
namespace {

using namespace std::chrono_literals;
constexpr std::string_view kPartStart = "flight-recorder.rank-";
constexpr uint64_t kMostFileBytes = 1 << 30;
constexpr auto kDiskMoment = 2s;  // longest wait for the disk

bool is_part(std::string_view name) { return name.starts_with(kPartStart) && name.ends_with(".txt"); }

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

std::string this_process() { return fmt::format("process {} on {}", getpid(), host_name()); }

// The files of a job, as one rank sees them. Owns nothing that could be freed while a thread hangs in it.
class FlightFolder {
 public:
  explicit FlightFolder(FlightFile::Place place) : place_(std::move(place)) {}

  Path path() const { return place_.folder / "flight-recorder.txt"; }
  void write_own(std::string_view text) const { replace_file(part_path(place_.rank), text); }

  // If this is the lowest rank with a part: waits a moment for the others, except those that are `gone`, then
  // merges.
  void put_together(const std::function<bool(int rank)>& gone) const {
    // Launchers kill the rest of a job about a second after its first process has ended.
    constexpr auto kPatience = 500ms, kStep = 10ms;
    for (auto waited = 0ms; waited <= kPatience; waited += kStep) {
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
  }

 private:
  Path part_path(int rank) const {
    return place_.folder / fmt::format("{}{:04}{}", kPartStart, rank, part_end());
  }
  std::string part_end() const { return fmt::format(".{}.txt", place_.job); }

  std::set<int> ranks_with_part() const {
    std::set<int> ranks;
    for (const std::string& name : list_folder(place_.folder)) {
      if (!is_part(name) || !name.ends_with(part_end())) continue;
      ranks.insert(std::atoi(name.c_str() + kPartStart.size()));
    }
    return ranks;
  }

  bool is_merged() const {
    if (!file_exists(path())) return false;
    const File file = File::open(path());
    std::string start(std::min<uint64_t>(file.size(), flight_title(place_.job).size()), 0);
    file.read_at(start.data(), start.size(), 0);
    return start == flight_title(place_.job);
  }

  void merge() const {
    std::map<int, FlightPart> parts;
    std::set<int> ranks;
    do {  // again if a part has arrived in the meantime
      ranks = ranks_with_part();
      for (const int rank : ranks) {
        if (std::optional<FlightPart> part = parse_flight_part(read_file(part_path(rank), kMostFileBytes))) {
          parts[rank] = std::move(*part);
        }
      }
      replace_file(path(), merge_flight_parts(parts, place_.size));
    } while (ranks_with_part().size() > ranks.size());
    for (const std::string& name : list_folder(place_.folder)) {
      if (is_part(name)) remove_file(place_.folder / name);  // those of earlier jobs too
    }
  }

  // The file exists already: appends this rank's part.
  void add_late_part() const {
    if (!file_exists(part_path(place_.rank))) return;
    const std::optional<FlightPart> part =
        parse_flight_part(read_file(part_path(place_.rank), kMostFileBytes));
    if (!part) return;
    replace_file(path(), read_file(path(), kMostFileBytes) + "\nArrived later:\n" + describe(*part));
    remove_file(part_path(place_.rank));
  }

  FlightFile::Place place_;
};

// Diagnostics must not delay the error they belong to.
void write_soon(std::function<void()> work) {
  try {
    if (!finishes_within(kDiskMoment, std::move(work)))
      log_warning("[comm] the flight records are not written: the folder does not respond");
  } catch (const Error& problem) {
    log_warning("[comm] the flight records are not written: {}", problem.what());
  }
}

}  // namespace

std::string new_job_name() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("{}-{}", getpid(), std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

FlightFile::FlightFile(Place place, std::shared_ptr<FlightRecorder> recorder)
    : place_(std::move(place)), recorder_(std::move(recorder)) {}

bool FlightFile::wanted() const noexcept {
  if (place_.size <= 1 || place_.folder.empty()) return false;
  try {
    const auto there = std::make_shared<std::atomic<bool>>(false);
    const auto look = [there, folder = place_.folder] {
      std::error_code error;
      *there = std::filesystem::is_directory(folder, error);
    };
    return finishes_within(kDiskMoment, look) && *there;
  } catch (...) {  // no memory or no thread: the error itself is on its way
    return false;
  }
}

void FlightFile::tell(std::string_view error, const std::optional<Failure>& failure,
                      const std::map<int, std::string>& seen) noexcept {
  if (told_.exchange(true)) return;
  try {
    if (wanted()) {
      log_warning("{}; the last operations of all ranks: {}", error, FlightFolder(place_).path().string());
      write_part(error, failure, seen);
    } else {
      constexpr size_t kFew = 12;
      log_warning("{}\nlast operations of this rank:\n{}", error, recorder_->dump(kFew));
    }
  } catch (...) {  // the log is optional; the error itself is on its way
  }
}

void FlightFile::write_part(std::string_view error, const std::optional<Failure>& failure,
                            const std::map<int, std::string>& seen) noexcept {
  if (written_ || !wanted() || written_.exchange(true)) return;
  try {
    const FlightPart part{.job = place_.job,
                          .rank = place_.rank,
                          .process = this_process(),
                          .time = time_now(),
                          .error = std::string(error),
                          .failure = failure ? text_of(*failure) : std::string(error),
                          .positions = recorder_->positions(),
                          .seen = seen,
                          .operations = recorder_->dump()};
    write_soon([folder = FlightFolder(place_), text = to_text(part)] { folder.write_own(text); });
  } catch (...) {  // no memory: the error itself is on its way
  }
}

void FlightFile::finish(const std::function<bool(int rank)>& gone) noexcept {
  if (!written_ || !wanted()) return;
  try {
    write_soon([folder = FlightFolder(place_), gone] { folder.put_together(gone); });
  } catch (...) {  // as above
  }
}

}  // namespace zeno::comm
