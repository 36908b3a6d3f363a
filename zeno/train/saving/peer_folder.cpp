#include "zeno/train/saving/peer_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <random>
#include <set>

#include "zeno/base/disk_operation.h"
#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/base/log.h"
#include "zeno/base/text_list.h"
#include "zeno/checkpoint/checkpoint.h"
#include "zeno/checkpoint/state_file.h"
#include "zeno/comm/joint_error.h"

namespace zeno::train {
namespace {

using checkpoint::kManifestName;

// There is one for each output folder and user.
Path path_of(const config::RunConfig& run) {
  std::error_code ignored;  // a path that cannot be read is refused later
  const Path given = std::filesystem::absolute(run.out);
  const DiskOperation waiting("inspecting", given);
  const Path out = std::filesystem::weakly_canonical(given, ignored);
  const std::string key = fmt::format("{} {}", getuid(), out.string());
  return Path(run.peer_snapshot_dir) /
         fmt::format("zeno-{:016x}", checkpoint::checksum_of(std::as_bytes(std::span(key))));
}

constexpr std::string_view kIdName = "id";

std::string marker_name(int rank, const std::string& round) { return fmt::format("rank-{}-{}", rank, round); }

// The file in the output folder that says which snapshots belong to it.
Path id_file(const config::RunConfig& run) { return Path(run.out) / "peer_snapshots.id"; }

// Returns what `read` returns, or nothing if `path` is gone: a run that ends may remove it at any moment.
template <class Read>
auto unless_gone(const Path& path, const Read& read) -> decltype(read()) {
  try {
    return read();
  } catch (const Error&) {
    if (path_exists(path)) throw;
    return {};
  }
}

std::string read_id(const Path& file) {
  return unless_gone(file, [&] { return read_file(file); });
}

std::string id_of(const config::RunConfig& run) { return read_id(id_file(run)); }

// Whether the snapshots in `folder` belong to the run `id`.
bool belongs(const Path& folder, const std::string& id) {
  return !id.empty() && read_id(folder / kIdName) == id;
}

}  // namespace

std::vector<Path> list_peer_snapshots(const config::RunConfig& run) {
  const Path folder = path_of(run);
  if (!belongs(folder, id_of(run))) return {};
  return unless_gone(folder, [&] { return checkpoint::list_checkpoints(folder); });
}

// One snapshot on one host.
struct PeerFolder::Inventory {
  int64_t step = 0;
  int group = 0;
  int ranks = 0;  // number of ranks that wrote it; 0: the manifest is not on this host
  std::set<std::string> files;
};

struct PeerFolder::Move {
  int from = 0, to = 0;
  std::string file;
};

PeerFolder::PeerFolder(const config::RunConfig& run, comm::World& world)
    : run_(run), world_(world), path_(path_of(run)) {
  std::string problem;
  const bool wanted = run.peer_snapshot > 0;
  bool there = false;
  try {
    there = path_exists(path_);
    if (wanted || there) make_folder();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  problem = comm::first_problem(world, problem, "folder of snapshots");
  require(problem.empty() || !wanted, ErrorKind::io, "{}", problem);
  // If the run takes no snapshots, only what an earlier run left counts.
  bool any = wanted;
  for (const std::string& theirs : world.exchange(there ? "there" : "")) any |= !theirs.empty();
  if (!any || !problem.empty()) return;
  make_folder();
  find_groups();
  refuse_newer();
  drop_foreign();
}

PeerFolder::~PeerFolder() {
  const DiskOperation waiting("removing", path_);
  std::error_code ignored;  // another rank may have removed it, or it is not empty
  std::filesystem::remove(path_, ignored);
}

// Accessible to this user only: no other user may read the state of a model, or put one there.
void PeerFolder::make_folder() const {
  make_folders(path_.parent_path());
  const DiskOperation waiting("creating", path_);
  if (::mkdir(path_.c_str(), 0700) == 0) return;
  require(errno == EEXIST, ErrorKind::io, "[peer snapshot] cannot create {}: {}; use --peer-snapshot-dir",
          path_.string(), std::strerror(errno));
  struct stat info;
  require(::lstat(path_.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == getuid() &&
              (info.st_mode & 077) == 0,
          ErrorKind::io,
          "[peer snapshot] {}: expected a folder of this user that no other user can enter; remove it, or "
          "use --peer-snapshot-dir",
          path_.string());
}

// Ranks share a folder if they see each other's marks in it, whatever the names of their hosts.
void PeerFolder::find_groups() {
  const std::string round = world_.exchange(fmt::format("{}-{}", getpid(), ::time(nullptr)))[0];
  const Path mark = path_ / marker_name(world_.rank(), round);
  replace_file(mark, "");
  world_.exchange("marked");
  int first = 0;
  while (!file_exists(path_ / marker_name(first, round))) ++first;
  std::vector<int> folders;
  for (const std::string& theirs : world_.exchange(std::to_string(first)))
    folders.push_back(std::stoi(theirs));
  remove_file(mark);
  groups_.emplace(folders);
  if (groups_->count() > 1) transfer_ = std::make_unique<PeerTransfer>(world_);
  world_.exchange("unmarked");
}

// Snapshots written by a newer Zeno stop the run, whichever run they belong to.
void PeerFolder::refuse_newer() const {
  comm::work_together(world_, "versions of peer snapshots", [&] {
    if (!leads()) return;
    for (const Path& snapshot : checkpoint::list_checkpoints(path_)) {
      if (checkpoint::is_newer(snapshot)) checkpoint::read_manifest(snapshot);  // throws the error
    }
  });
}

// Removes snapshots of other runs. A run and one that resumes it have the same output folder. A host that was
// not part of the run has no snapshots, or those of another run.
void PeerFolder::drop_foreign() {
  id_ = world_.exchange(world_.rank() == 0 && run_.resume == "auto" ? id_of(run_) : "")[0];
  if (leads() && !id_.empty() && !belongs(path_, id_)) {
    clear(-1);
    replace_file(path_ / kIdName, id_);
  }
  world_.exchange("clear");
}

void PeerFolder::clear(int64_t but_step) const {
  for (const std::string& name : list_folder(path_)) {
    if (name != kIdName && name != checkpoint::checkpoint_name(but_step)) remove_folder(path_ / name);
  }
}

// For each snapshot: step, ranks of the manifest, files.
std::string PeerFolder::list_own() const {
  std::vector<std::string> snapshots;
  for (const std::string& name : list_folder(path_)) {
    const std::optional<int64_t> step = checkpoint::step_of(name);
    if (!step) continue;
    int ranks = 0;
    std::vector<std::string> files;
    for (const std::string& file : list_folder(path_ / name)) {
      if (file.ends_with(".safetensors")) files.push_back(file);
      if (file != kManifestName) continue;
      try {
        ranks = checkpoint::read_manifest(path_ / name).ranks;
        files.push_back(file);
      } catch (const Error& error) {
        log_warning("[peer snapshot] {}", error.what());
      }
    }
    std::vector<std::string> entry{std::to_string(*step), std::to_string(ranks)};
    std::ranges::move(files, std::back_inserter(entry));
    snapshots.push_back(pack_texts(entry));
  }
  return pack_texts(snapshots);
}

std::vector<PeerFolder::Inventory> PeerFolder::exchange_inventories() {
  const std::vector<std::string> texts = world_.exchange(leads() ? list_own() : "");
  std::vector<Inventory> all;
  for (int rank = 0; rank < world_.size(); ++rank) {
    for (const std::string& snapshot : unpack_texts(texts[size_t(rank)])) {
      const std::vector<std::string> words = unpack_texts(snapshot);
      Inventory& entry = all.emplace_back();
      entry.group = groups_->group_of(rank);
      entry.step = std::stoll(words.at(0));
      entry.ranks = std::stoi(words.at(1));
      entry.files.insert(words.begin() + 2, words.end());
    }
  }
  return all;
}

std::optional<std::vector<PeerFolder::Move>> PeerFolder::moves_for(int64_t step,
                                                                   const std::vector<Inventory>& all,
                                                                   bool replicated) const {
  int ranks = 0;
  std::map<int, const Inventory*> on;  // by group
  for (const Inventory& entry : all) {
    if (entry.step != step) continue;
    on[entry.group] = &entry;
    ranks = std::max(ranks, entry.ranks);
  }
  if (ranks == 0) return std::nullopt;  // the snapshot was never finished
  const auto has = [&](int group, const std::string& file) {
    return on.contains(group) && on[group]->files.contains(file);
  };
  const bool same = ranks == world_.size();
  std::vector<Move> moves;
  for (int group = 0; group < groups_->count(); ++group) {
    const std::vector<int>& members = groups_->members(group);
    for (int rank = -1; rank < ranks; ++rank) {
      const bool member = rank < 0 || std::ranges::find(members, rank) != members.end();
      if (same && !replicated && !member) continue;
      const std::string file =
          rank < 0 ? std::string(kManifestName) : checkpoint::state_file_name(rank, ranks);
      if (has(group, file)) continue;
      int source = 0;
      while (source < groups_->count() && !has(source, file)) ++source;
      if (!same || source == groups_->count()) return std::nullopt;
      const std::vector<int>& senders = groups_->members(source);
      const size_t which = size_t(std::max(rank, 0));
      moves.push_back({senders[which % senders.size()],
                       rank >= 0 && member ? rank : members[which % members.size()], file});
    }
  }
  return moves;
}

bool PeerFolder::all_say(bool fine) {
  for (const std::string& theirs : world_.exchange(fine ? "fine" : "")) fine &= !theirs.empty();
  return fine;
}

bool PeerFolder::fetch(const Path& folder, const std::vector<Move>& moves) {
  bool fine = true;
  const auto attempt = [&](const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::peer) throw;
      log_warning("{}", error.what());
      fine = false;
    }
  };
  attempt([&] { make_folders(folder); });
  // All ranks use the same order, so there is no circular wait; pairs that share no rank run concurrently.
  for (const Move& move : moves) {
    const PeerTransfer::End end{move.from == world_.rank() ? move.to : move.from, folder / move.file};
    if (move.from == world_.rank()) attempt([&] { transfer_->move(end, {}); });
    if (move.to == world_.rank()) attempt([&] { transfer_->move({}, end); });
  }
  if (!all_say(fine)) return false;
  attempt([&] { checkpoint::Checkpoint::open(folder, checkpoint::Files::present); });
  return all_say(fine);
}

std::vector<Path> PeerFolder::find(bool replicated) {
  std::vector<Path> found;
  if (!exists() || id_.empty()) return found;
  const std::vector<Inventory> all = exchange_inventories();
  std::set<int64_t, std::greater<>> steps;
  for (const Inventory& entry : all) {
    if (entry.ranks > 0) steps.insert(entry.step);
  }
  for (const int64_t step : steps) {
    const std::optional<std::vector<Move>> moves = moves_for(step, all, replicated);
    if (!moves) {
      if (world_.rank() == 0)
        log_warning(
            "[peer snapshot] step {} is not complete in the memory of these hosts, or was written by another "
            "number of ranks on several hosts: looking for an older snapshot and on the disk",
            step);
      continue;
    }
    const Path folder = path_ / checkpoint::checkpoint_name(step);
    if (fetch(folder, *moves)) found.push_back(folder);
    if (!moves->empty() && world_.rank() == 0)
      log_info("[peer snapshot] step {}: {} files came from another host", step, moves->size());
  }
  return found;
}

void PeerFolder::begin(int64_t step) {
  if (!exists()) return;
  const bool anew = id_.empty();
  if (anew) id_ = world_.exchange(fmt::format("{:08x}", std::random_device()()))[0];
  if (leads()) {
    if (anew && !checkpoint::list_checkpoints(path_).empty())
      log_info("[peer snapshot] {}: removing what an earlier run left there", path_.string());
    clear(anew ? -1 : step);
    replace_file(path_ / kIdName, id_);
  }
  world_.exchange("begun");
  if (world_.rank() == 0) replace_file(id_file(run_), id_);
}

void PeerFolder::remove() {
  if (!exists()) return;
  if (world_.rank() == 0) remove_file(id_file(run_));
  world_.exchange("over");
  if (leads()) remove_folder(path_);
}

}  // namespace zeno::train
