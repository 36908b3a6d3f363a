#include "zeno/train/saving/checkpoint_saver.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/base/thread.h"
#include "zeno/checkpoint/state_file.h"
#include "zeno/train/saving/checkpoint_state.h"

namespace zeno::train {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// Runs `work` and returns its error, or an empty string.
template <class F>
std::string problem_of(F&& work) {
  try {
    work();
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

// How a rank's file of states on disk becomes a part of a checkpoint; without a header, it does not.
struct SwapPart {
  std::string header;
  std::vector<checkpoint::Extent> extents;  // in file order
};

SwapPart swap_part(const zero::Snapshot& snapshot, const checkpoint::Manifest& manifest,
                   const std::vector<checkpoint::Extent>& pieces) {
  SwapPart swap;
  if (snapshot.file_parts().empty()) return swap;
  int64_t at = 0;
  for (const zero::Snapshot::FilePart& part : snapshot.file_parts()) {
    constexpr int kFilling = checkpoint::Extent::kFilling;
    const checkpoint::Extent filling{
        .state = kFilling, .tensor = kFilling, .begin = at, .count = int64_t(part.bytes)};
    swap.extents.push_back(part.piece < 0 ? filling : pieces[size_t(part.piece)]);
    at += int64_t(part.bytes);
  }
  swap.header = checkpoint::swap_header(manifest, swap.extents, snapshot.layout().head);
  return swap;
}

}  // namespace

CheckpointSaver::CheckpointSaver(SaverOptions options, zero::Engine& engine, comm::World& world)
    : options_(std::move(options)), engine_(engine), world_(world) {}

CheckpointSaver::~CheckpointSaver() {
  given_up_ = true;
  if (thread_.joinable()) thread_.join();
}

checkpoint::Manifest CheckpointSaver::layout(int64_t step, const std::string& run) const {
  checkpoint::Manifest manifest;
  manifest.step = step;
  manifest.ranks = world_.size();
  manifest.run = run;
  manifest.states = saved_states(engine_);
  manifest.tensors = saved_tensors(engine_);
  return manifest;
}

// Removes what an earlier attempt at this step left, before any rank writes.
bool CheckpointSaver::prepare(const Path& folder, int64_t step) {
  std::string problem;
  if (leads()) {
    problem = problem_of([&] {
      checkpoint::remove_checkpoint(folder);
      make_folders(folder);
    });
  }
  problem = comm::first_problem(world_, problem, "checkpoint folder");
  if (!problem.empty() && world_.rank() == 0)
    log_warning("[checkpoint] step {} was not saved: {}", step, problem);
  return problem.empty();
}

bool CheckpointSaver::start(int64_t step, const std::string& run, int64_t best, bool taken) {
  const std::string problem = finish();
  if (!problem.empty() && world_.rank() == 0)
    log_warning("{}; training continues, and the earlier checkpoints are complete", problem);
  if (step == saved_) return true;  // writing it again would first remove an intact checkpoint
  const Path folder = options_.folder / checkpoint::checkpoint_name(step);
  if (!prepare(folder, step)) return false;
  under_way_ = step;
  all_written_ = false;
  if (!taken) engine_.take_snapshot();
  std::promise<std::string> own_file, manifest;
  own_file_ = own_file.get_future();
  manifest_ = manifest.get_future();
  thread_ = start_thread([this, folder, best, layout = layout(step, run), own_file = std::move(own_file),
                          manifest = std::move(manifest), rank = world_.rank()]() mutable {
    set_log_rank(rank);
    const std::string failed = problem_of([&] { write_own_files(folder, layout); });
    engine_.snapshot().release();  // also after a failure
    own_file.set_value(failed);
    manifest.set_value(problem_of([&] {
      // Also after a failure, because the other ranks wait for this one in it.
      if (options_.collect) layout.files = options_.collect(folder);
      if (!leads() || !failed.empty()) return;
      write_manifest(folder, layout);
      keep(layout.step, best);
    }));
  });
  return true;
}

bool CheckpointSaver::busy() const {
  return thread_.joinable() && manifest_.wait_for(0s) != std::future_status::ready;
}

std::string CheckpointSaver::finish() {
  if (!thread_.joinable()) return {};
  const std::vector<std::string> written = world_.exchange(own_file_.get(), "checkpoint files");
  std::string problem;
  for (size_t rank = 0; rank < written.size() && problem.empty(); ++rank) {
    if (!written[rank].empty())
      problem = fmt::format("[checkpoint] step {}: rank {} could not write its part: {}", under_way_, rank,
                            written[rank]);
  }
  (problem.empty() ? all_written_ : given_up_) = true;
  const std::string uncommitted = comm::first_problem(world_, manifest_.get(), "checkpoint manifest");
  thread_.join();
  given_up_ = false;
  if (problem.empty()) problem = uncommitted;
  if (problem.empty()) saved_ = under_way_;
  if (!problem.empty() && leads()) make_room();
  return problem;
}

// States on disk need not be written if their file can be moved into the folder.
void CheckpointSaver::write_own_files(const Path& folder, const checkpoint::Manifest& manifest) {
  zero::Snapshot& snapshot = engine_.snapshot();
  const int rank = world_.rank();
  std::vector<checkpoint::Extent> extents = saved_extents(engine_);
  SwapPart swap = swap_part(snapshot, manifest, extents);
  const std::optional<DiskStore::Given> given =
      swap.header.empty() ? std::nullopt : snapshot.give_file(folder);
  if (given) extents.resize(snapshot.pieces_in_memory());
  std::optional<checkpoint::StateFileWriter> writer;
  if (!extents.empty() || !given) {  // every rank writes a file, because peers look for it
    writer.emplace(folder, manifest, rank, std::move(extents));
    writer->write([&](size_t begin, size_t end) { return snapshot.part(begin, end); }, zero::Snapshot::kPart);
  }
  snapshot.release();  // before the data is synced to disk, so that training can continue
  std::vector<checkpoint::StateFile> files;
  if (writer) files.push_back(writer->commit());
  if (given) {
    for (size_t i = 0; i < swap.extents.size(); ++i) swap.extents[i].checksum = given->checksums[i];
    const Path path = folder / checkpoint::swap_file_name(rank, manifest.ranks);
    given->file().move_to(path);
    files.push_back(checkpoint::seal_swap_file(path, swap.header, std::move(swap.extents)));
  }
  checkpoint::leave_note(folder, rank, manifest.ranks, files);
}

// Removes what a failed save has written: the next one may need the space.
void CheckpointSaver::make_room() {
  const Path folder = options_.folder / checkpoint::checkpoint_name(under_way_);
  const std::string problem = problem_of([&] {
    if (!file_exists(folder / checkpoint::kManifestName)) checkpoint::remove_checkpoint(folder);
  });
  if (!problem.empty()) log_warning("{}", problem);
}

std::vector<checkpoint::StateFile> CheckpointSaver::wait_for_note(const Path& folder, int rank) {
  // The disk may be slow. But once all ranks say that they are done, their notes must appear within half of
  // the deadline, before other ranks take this one for dead.
  std::optional<Clock::time_point> end;
  while (true) {
    if (auto note = checkpoint::read_note(folder, rank, world_.size())) return std::move(*note);
    require(!given_up_, ErrorKind::peer, "[checkpoint] {}: the file of rank {} was never finished",
            folder.string(), rank);
    if (all_written_ && !end) end = Clock::now() + options_.deadline / 2;
    require(!end || Clock::now() < *end, ErrorKind::io,
            "[checkpoint] {}: rank {} has written its file, but rank 0 cannot see it; use a folder that all "
            "hosts share",
            folder.string(), rank);
    std::this_thread::sleep_for(2ms);
  }
}

void CheckpointSaver::write_manifest(const Path& folder, checkpoint::Manifest manifest) {
  for (int rank = 0; rank < manifest.ranks && !options_.collect; ++rank)
    std::ranges::move(wait_for_note(folder, rank), std::back_inserter(manifest.files));
  checkpoint::commit_manifest(folder, manifest);
}

// The new checkpoint is complete by now, so a failure to remove older ones is only a warning.
void CheckpointSaver::keep(int64_t newest, int64_t best) {
  checkpoint::Retention retention = options_.retention;
  retention.keep_best = best;
  const std::string problem =
      problem_of([&] { checkpoint::apply_retention(options_.folder, retention, newest); });
  if (!problem.empty()) log_warning("[checkpoint] cannot delete an old checkpoint: {}", problem);
}

}  // namespace zeno::train
