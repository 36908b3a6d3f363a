// Finding checkpoints and removing old ones.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/base/newer_version.h"
#include "zeno/checkpoint/checkpoint.h"
#include "zeno/checkpoint/state_file.h"

namespace zeno::checkpoint {
namespace {

constexpr std::string_view kPrefix = "step-";

// Steps that have a folder, finished or not, newest first.
std::vector<int64_t> steps_below(const Path& folder) {
  std::vector<int64_t> steps;
  if (!folder_exists(folder)) return steps;
  for (const std::string& name : list_folder(folder)) {
    if (const std::optional<int64_t> step = step_of(name)) steps.push_back(*step);
  }
  std::ranges::sort(steps, std::greater<>{});
  return steps;
}

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step < 0) return std::nullopt;
  return step;
}

std::vector<Path> list_checkpoints(const Path& folder) {
  std::vector<Path> found;
  for (int64_t step : steps_below(folder)) {
    const Path path = folder / checkpoint_name(step);
    if (file_exists(path / kManifestName)) found.push_back(path);
  }
  return found;
}

bool is_newer(const Path& folder) {
  constexpr uint64_t kBeginning = uint64_t(64) << 10;  // of whatever version: its number is in there
  if (!file_exists(folder / kManifestName)) return false;
  const File file = File::open(folder / kManifestName);
  std::string beginning(std::min(file.size(), kBeginning), '\0');
  file.read_at(beginning.data(), beginning.size(), 0);
  if (stated_version(beginning) <= kManifestVersion) return false;
  // What is larger than any manifest of ours is not damage of one.
  return file.size() > kMaxManifestBytes || is_newer_manifest(read_file(folder / kManifestName));
}

void remove_checkpoint(const Path& folder) {
  if (!folder_exists(folder)) return;
  if (is_newer(folder)) read_manifest(folder);  // says so
  if (file_exists(folder / kManifestName)) {
    remove_file(folder / kManifestName);
    sync_folder(folder);
  }
  remove_folder(folder);
}

std::optional<Checkpoint> open_latest(const Path& folder) {
  for (const Path& path : list_checkpoints(folder)) {
    try {
      return Checkpoint::open(path);
    } catch (const NewerVersion&) {
      throw;
    } catch (const Error& error) {
      log_warning("{}; trying an older checkpoint", error.what());
    }
  }
  return std::nullopt;
}

void apply_retention(const Path& folder, const Retention& retention, int64_t newest) {
  int64_t kept = 0;
  for (int64_t step : steps_below(folder)) {
    const Path path = folder / checkpoint_name(step);
    const bool whole = file_exists(path / kManifestName);
    if (step > newest) continue;  // of a run that is not ours, or a save that has just begun
    if (is_newer(path)) continue;
    if (!whole) {
      remove_checkpoint(path);
      continue;
    }
    const bool wanted = step == newest || step == retention.keep_best || retention.keep_last == 0 ||
                        kept < retention.keep_last ||
                        (retention.keep_every > 0 && step % retention.keep_every == 0);
    ++kept;
    if (!wanted) remove_checkpoint(path);
  }
}

}  // namespace zeno::checkpoint
