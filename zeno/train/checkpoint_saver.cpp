#include "zeno/train/checkpoint_saver.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/checkpoint/state_file.h"
#include "zeno/train/checkpoint_state.h"

namespace zeno::train {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

}  // namespace

CheckpointSaver::CheckpointSaver(SaverOptions options, zero::Engine& engine, comm::World& world)
    : options_(std::move(options)), engine_(engine), world_(world) {}

CheckpointSaver::~CheckpointSaver() {
  given_up_ = true;
  try {
    finish();
  } catch (const std::exception& error) {
    log_warning("{}", error.what());
  }
}

checkpoint::Manifest CheckpointSaver::layout(int64_t step, const std::string& run) const {
  checkpoint::Manifest manifest;
  manifest.step = step;
  manifest.world = world_.size();
  manifest.run = run;
  manifest.states = saved_states(engine_);
  manifest.tensors = saved_tensors(engine_);
  return manifest;
}

void CheckpointSaver::start(int64_t step, const std::string& run) {
  if (step == last_) return;  // writing it again would take away a whole one first
  try {
    finish();
  } catch (const std::exception& error) {
    log_warning("{}; training goes on, and the checkpoints before it are whole", error.what());
  }
  const Path folder = options_.folder / checkpoint::checkpoint_name(step);
  // What an earlier attempt at this step left must be gone before any rank writes.
  std::string problem;
  if (world_.rank() == 0) {
    try {
      std::filesystem::remove_all(folder);
      make_folders(folder);
    } catch (const std::exception& error) {
      problem = error.what();
    }
  }
  problem = world_.exchange(problem)[0];
  if (!problem.empty()) {
    log_warning("[checkpoint] step {} is not saved: {}", step, problem);
    return;
  }
  last_ = step;
  engine_.take_snapshot();
  thread_ = std::thread([this, folder, manifest = layout(step, run), rank = world_.rank()] {
    set_log_rank(rank);
    try {
      write(folder, manifest);
    } catch (...) {
      error_ = std::current_exception();
    }
  });
}

void CheckpointSaver::finish() {
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void CheckpointSaver::write(const Path& folder, checkpoint::Manifest manifest) {
  try {
    write_own_file(folder, manifest);
  } catch (const std::exception& error) {
    // On a full disk the note may fail as well: the reason is what counts.
    try {
      checkpoint::write_failure_note(folder, world_.rank(), manifest.world, error.what());
    } catch (const Error& second) {
      log_warning("{}", second.what());
    }
    throw;
  }
  if (world_.rank() == 0) write_manifest(folder, std::move(manifest));
}

void CheckpointSaver::write_own_file(const Path& folder, const checkpoint::Manifest& manifest) {
  engine_.wait_for_snapshot();
  const zero::Snapshot& snapshot = engine_.snapshot();
  checkpoint::StateFileWriter writer(folder, manifest, world_.rank(), saved_extents(engine_));
  for (size_t i = 0; i < snapshot.pieces().size(); ++i) writer.write(i, snapshot.bytes(i));
  writer.commit();
}

void CheckpointSaver::write_manifest(const Path& folder, checkpoint::Manifest manifest) {
  const auto end = Clock::now() + options_.deadline;
  for (int rank = 0; rank < manifest.world; ++rank) {
    std::optional<checkpoint::StateFile> file;
    while (!(file = checkpoint::read_note(folder, rank, manifest.world))) {
      require(
          Clock::now() < end && !given_up_, ErrorKind::peer,
          "[checkpoint] {}: the file of rank {} is not there; the run ended before, or its disk is slow, or "
          "it cannot see this folder",
          folder.string(), rank);
      std::this_thread::sleep_for(2ms);
    }
    manifest.files.push_back(std::move(*file));
  }
  checkpoint::commit_manifest(folder, manifest);
  checkpoint::apply_retention(options_.folder, options_.retention, manifest.step);
}

}  // namespace zeno::train
