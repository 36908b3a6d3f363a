#include "zeno/train/saving/peer_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "zeno/base/disk_operation.h"
#include "zeno/base/error.h"
#include "zeno/base/host.h"
#include "zeno/base/log.h"
#include "zeno/checkpoint/state_file.h"
#include "zeno/config/engine_options.h"
#include "zeno/device/device.h"

namespace zeno::train {
namespace {

// What a file has besides its values: for each piece a header and a few lines of the manifest, rounded up.
constexpr size_t kBytesPerPiece = 512;

size_t bytes_below(const Path& folder) {
  const DiskOperation waiting("listing", folder);
  size_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  return bytes;
}

}  // namespace

PeerSaver::PeerSaver(const config::RunConfig& run, PeerFolder& folder, zero::Engine& engine,
                     comm::World& world, int64_t first)
    : run_(run), folder_(folder), engine_(engine), world_(world), last_(first) {
  folder.begin(first);
  if (run.peer_snapshot == 0) return;
  check_room();
  SaverOptions options{.folder = folder.path(),
                       .retention = {.keep_last = config::kPeerSnapshots},
                       .deadline = std::chrono::milliseconds(int64_t(run.deadline_s * 1000)),
                       .leader = folder.groups().leader_of(world.rank()),
                       .collect = {}};
  if (folder.transfer() != nullptr) options.collect = [this](const Path& path) { return share(path); };
  saver_ = std::make_unique<CheckpointSaver>(std::move(options), engine, world);
}

// Checks the room for all ranks whose files are stored in this rank's folder.
void PeerSaver::check_room() const {
  const PeerGroups& groups = folder_.groups();
  const zero::Snapshot& snapshot = engine_.snapshot();
  const size_t mine = snapshot.size() + snapshot.pieces().size() * kBytesPerPiece;
  const std::vector<std::string> sizes = world_.exchange(std::to_string(mine));
  const int group = groups.group_of(world_.rank());
  size_t need = 0;
  for (int rank = 0; rank < world_.size(); ++rank) {
    const int partner = groups.partner(rank);
    const bool here = groups.group_of(rank) == group || (partner >= 0 && groups.group_of(partner) == group);
    if (here) need += config::kPeerSnapshots * std::stoull(sizes[size_t(rank)]);
  }
  const size_t old = bytes_below(folder_.path());
  const size_t room = size_t(free_space(folder_.path())) + old, memory = available_host_memory() + old;
  std::string problem;
  if (need > std::min(room, memory)) {
    problem = fmt::format(
        "[peer snapshot] {}: {} snapshots of {} ranks need {}, and {} are free there and {} in memory; make "
        "the file system larger (docker run --shm-size), choose another with --peer-snapshot-dir, or use "
        "--save-every instead",
        folder_.path().string(), config::kPeerSnapshots, groups.members(group).size(), format_bytes(need),
        format_bytes(room), format_bytes(memory));
  }
  problem = comm::first_problem(world_, problem, "room for snapshots");
  require(problem.empty(), ErrorKind::memory, "{}", problem);
}

bool PeerSaver::due(int64_t step, bool busy) {
  if (!on() || step - last_ < run_.peer_snapshot) return false;
  put_off_ += busy;
  return !busy;
}

void PeerSaver::start(int64_t step, const std::string& run, bool taken) {
  wait();
  // Makes room for this snapshot; the newest complete one stays.
  if (folder_.leads()) {
    try {
      checkpoint::apply_retention(folder_.path(), {.keep_last = config::kPeerSnapshots - 1}, step - 1);
    } catch (const Error& error) {
      log_warning("{}", error.what());
    }
  }
  last_ = step;
  taken_ += saver_->start(step, run, -1, taken);
}

void PeerSaver::wait() {
  if (!on()) return;
  const std::string problem = saver_->finish();
  if (!problem.empty() && world_.rank() == 0) log_warning("{}; training continues", problem);
}

// Copies every file to another host, and tells all ranks which files were written. A rank that has failed
// takes part too, because the others would wait for it.
std::vector<checkpoint::StateFile> PeerSaver::share(const Path& folder) {
  const PeerGroups& groups = folder_.groups();
  const int rank = world_.rank(), ranks = world_.size(), partner = groups.partner(rank);
  const std::vector<int> kept = groups.kept_by(rank), rivals = groups.kept_by(partner);
  const size_t turn = size_t(std::ranges::find(rivals, rank) - rivals.begin());
  std::string problem, note;
  const auto attempt = [&](const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::peer) throw;
      problem = error.what();
    }
  };
  for (size_t round = 0; round < std::max(kept.size(), turn + 1); ++round) {
    PeerTransfer::End out, in;
    if (round == turn) out = {partner, folder / checkpoint::state_file_name(rank, ranks)};
    if (round < kept.size()) in = {kept[round], folder / checkpoint::state_file_name(kept[round], ranks)};
    attempt([&] { folder_.transfer()->move(out, in); });
  }
  attempt([&] {
    const auto written = checkpoint::read_note(folder, rank, ranks);
    if (written && problem.empty()) note = checkpoint::format_state_files(*written);
  });
  const std::vector<std::string> notes = folder_.transfer()->gather(note);
  require(problem.empty(), ErrorKind::io, "{}", problem);
  std::vector<checkpoint::StateFile> files;
  for (int r = 0; r < ranks; ++r) {
    const std::string& text = notes[size_t(r)];
    require(!text.empty(), ErrorKind::io, "[peer snapshot] rank {} could not write or pass on its part", r);
    for (auto& file : checkpoint::parse_state_files(text, fmt::format("note of rank {}", r)))
      files.push_back(std::move(file));
  }
  return files;
}

void PeerSaver::finish(bool keep) {
  wait();
  if (on() && world_.rank() == 0)
    log_info("[peer snapshot] {} taken; {} postponed because a save was in progress", taken_, put_off_);
  keep &= on() && !checkpoint::list_checkpoints(folder_.path()).empty();
  if (!keep) return folder_.remove();
  log_info("[peer snapshot] {}: the last state stays in memory; --resume auto resumes from it",
           folder_.path().string());
}

}  // namespace zeno::train
