#include "zeno/train/agreement.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "zeno/base/host.h"
#include "zeno/base/quantity.h"
#include "zeno/base/text_list.h"
#include "zeno/checkpoint/manifest.h"
#include "zeno/checkpoint/state_file.h"
#include "zeno/comm/joint_error.h"
#include "zeno/train/long_work.h"
#include "zeno/train/run_inputs.h"

namespace zeno::train {
namespace {

constexpr const char* kCopyFiles = "copy the same files to all hosts";

// Whether there are other processes, which may see other files.
bool spans_processes(const comm::World& world) { return world.size() > 1 && comm::launch_info().size > 1; }

uint64_t hash_of(std::string_view text) { return checkpoint::checksum_of(std::as_bytes(std::span(text))); }

std::string cut(const std::string& text) {
  constexpr size_t kLongest = 120;
  return text.size() <= kLongest ? text : fmt::format("{}…", text.substr(0, kLongest));
}

// Keeps the end of a path, which says more than its beginning.
std::string cut_path(const std::string& path) {
  constexpr size_t kLongest = 120;
  return path.size() <= kLongest ? path : fmt::format("…{}", path.substr(path.size() - kLongest));
}

constexpr size_t kTexts = 6;  // per input

std::string pack(const std::vector<RunInput>& inputs) {
  std::vector<std::string> texts;
  for (const RunInput& input : inputs) {
    for (const std::string& text : {input.name, input.shown, input.value, std::to_string(int(input.kind)),
                                    input.problem, std::string(input.file.empty() ? "" : "file")})
      texts.push_back(text);
  }
  return pack_texts(texts);
}

std::vector<RunInput> unpack_inputs(std::string_view packed) {
  const std::vector<std::string> texts = unpack_texts(packed);
  ensure(texts.size() % kTexts == 0, "[train] got {} texts for a list of inputs", texts.size());
  std::vector<RunInput> inputs;
  for (auto text = texts.begin(); text != texts.end(); text += kTexts)
    inputs.push_back({.name = text[0],
                      .shown = text[1],
                      .value = text[2],
                      .kind = ErrorKind(std::stoi(text[3])),
                      .problem = text[4],
                      .file = text[5],
                      .rule = {}});
  return inputs;
}

std::string describe_problem(const RunInput& input, int rank, const std::string& host) {
  constexpr std::string_view kTag = "[data] ";
  const size_t tag = input.problem.starts_with(kTag) ? kTag.size() : 0;
  return fmt::format("[train] rank {} on {} cannot read {}: {}", rank, host, input.name,
                     cut_path(input.problem.substr(tag)));
}

// How `theirs` differs from `first`, which is rank 0's.
std::string describe_difference(const RunInput& first, const RunInput& theirs, const std::string& host,
                                const std::string& first_host, int rank) {
  if (!theirs.problem.empty()) return describe_problem(theirs, rank, host);
  if (!first.problem.empty()) return describe_problem(first, 0, first_host);
  if (first.file.empty()) {
    return fmt::format(
        "[train] {} differs between rank {} on {} and rank 0 on {}: {} against {}; {}", theirs.name, rank,
        host, first_host, cut(theirs.value), cut(first.value),
        first.kind == ErrorKind::usage ? "give all ranks the same flags and config" : kCopyFiles);
  }
  const std::string where = theirs.shown == first.shown ? "" : fmt::format(" ({})", cut_path(first.shown));
  return fmt::format("[train] {} differs between rank {} on {} and rank 0 on {}{}: {} against {}; {}",
                     cut_path(theirs.shown), rank, host, first_host, where, cut(theirs.value),
                     cut(first.value),
                     first.kind == ErrorKind::usage ? "install the same program on all hosts" : kCopyFiles);
}

RunInput absent(const RunInput& input) {
  RunInput none = input;
  none.value = input.file.empty() ? "none" : "no such file";
  none.problem.clear();
  return none;
}

using Difference = std::pair<RunInput, RunInput>;

// The first input whose `view` differs, as a pair that begins with rank 0's. One rank's model folder may have
// a file that another's lacks.
template <class View>
std::optional<Difference> find_difference(const std::vector<RunInput>& first,
                                          const std::vector<RunInput>& theirs, const View& view) {
  std::map<std::string, const RunInput*> by_name;
  for (const RunInput& input : theirs) by_name[input.name] = &input;
  for (const RunInput& input : first) {
    const auto found = by_name.find(input.name);
    const RunInput other = found == by_name.end() ? absent(input) : *found->second;
    if (view(other.value) != view(input.value)) return Difference(input, other);
    if (found != by_name.end()) by_name.erase(found);
  }
  if (by_name.empty()) return std::nullopt;
  const RunInput& more = *by_name.begin()->second;
  return Difference(absent(more), more);
}

// `other` is the first rank that differs. Only its list and that of rank 0 are sent, because lists of many
// files are long.
[[noreturn]] void fail_on_difference(const std::vector<RunInput>& mine, int other, comm::World& world) {
  const bool sends = world.rank() == 0 || world.rank() == other;
  const std::vector<std::string> lists = world.exchange(sends ? pack(mine) : "", "inputs that differ");
  const std::vector<std::string> hosts = world.exchange(host_name(), "names of hosts");
  const std::vector<RunInput> first = unpack_inputs(lists[0]), theirs = unpack_inputs(lists[size_t(other)]);
  // Sizes first, because how much of a file is read depends on the files beside it.
  const auto size = [](const std::string& value) { return value.substr(0, value.find(" (hash ")); };
  auto found = find_difference(first, theirs, size);
  if (!found) found = find_difference(first, theirs, std::identity());
  ensure(found.has_value(), "[train] rank {} has other inputs than rank 0, although each of them is the same",
         other);
  comm::fail_together(
      world, 0, found->first.kind,
      describe_difference(found->first, found->second, hosts[size_t(other)], hosts[0], other));
}

// Fails unless all ranks have the inputs that `list` returns. Listing and reading them may take long. Of the
// processes on a host that see the same files, one reads them.
void agree_on(const std::function<std::vector<RunInput>()>& list, comm::World& world) {
  std::vector<RunInput> mine;
  // Device and inode numbers are comparable between processes of one kernel.
  std::vector<std::string> view{boot_id().empty() ? host_name() : boot_id()};
  work_long_together(world, "what the run reads", [&](const std::stop_token&) {
    mine = list();
    for (const RunInput& input : mine) {
      view.push_back(input.name);
      view.push_back(input.file.empty() ? input.value : file_identity(input.file));
    }
  });
  // A rank does not read files that a lower rank sees too.
  const std::vector<std::string> views =
      world.exchange(std::to_string(hash_of(pack_texts(view))), "files that ranks see");
  const bool leads = std::ranges::find(views, views[size_t(world.rank())]) - views.begin() == world.rank();
  std::vector<std::string> contents;
  std::function<void(std::stop_token)> read;
  if (leads) {
    read = [&](const std::stop_token& stop) {
      for (RunInput& input : mine) {
        if (!input.file.empty()) input.value = digest_file(input.file, input.rule, stop);
        contents.push_back(input.name);
        contents.push_back(input.value);
      }
    };
  }
  work_long_together(world, "reading of what the run reads", read);
  const std::vector<std::string> hashes =
      world.exchange(leads ? std::to_string(hash_of(pack_texts(contents))) : "", "contents of files");
  const auto other = std::ranges::find_if(
      hashes, [&](const std::string& hash) { return !hash.empty() && hash != hashes[0]; });
  if (other != hashes.end()) fail_on_difference(mine, int(other - hashes.begin()), world);
}

// Fails unless all ranks have the value of rank 0. `describe(rank, host, host of rank 0)` begins the error.
template <class Describe>
void require_same(const std::string& value, std::string_view what, comm::World& world,
                  const Describe& describe) {
  const std::vector<std::string> values = world.exchange(value, what);
  const auto other = std::ranges::find_if(values, [&](const std::string& v) { return v != values[0]; });
  if (other == values.end()) return;
  const std::vector<std::string> hosts = world.exchange(host_name(), "names of hosts");
  const auto rank = size_t(other - values.begin());
  comm::fail_together(world, 0, ErrorKind::data, describe(rank, hosts[rank], hosts[0], *other, values[0]));
}

}  // namespace

void agree_on_inputs(const config::ParsedConfig& parsed, comm::World& world) {
  if (spans_processes(world)) agree_on([&] { return run_inputs(parsed); }, world);
}

void agree_on_deepspeed(const checkpoint::DeepSpeedCheckpoint* checkpoint, comm::World& world) {
  if (spans_processes(world)) agree_on([&] { return deepspeed_inputs(checkpoint); }, world);
}

void agree_on_tokens(const data::TokenSource& tokens, std::string_view flag, comm::World& world) {
  if (!spans_processes(world)) return;
  const std::string value =
      fmt::format("{} tokens in {} samples (hash {:016x})", format_count(tokens.tokens()),
                  format_count(tokens.documents()), tokens.contents());
  require_same(
      value, "tokens of the data", world,
      [&](size_t rank, const auto& host, const auto& first_host, const auto& theirs, const auto& first) {
        return fmt::format(
            "[train] rank {} on {} reads different tokens from {} than rank 0 on {}: {} against {}; {} and "
            "delete --cache on {}",
            rank, host, flag, first_host, theirs, first, kCopyFiles, host);
      });
}

void agree_on_checkpoint(const Path& folder, comm::World& world) {
  if (!spans_processes(world)) return;
  const Path manifest = folder / checkpoint::kManifestName;
  std::string value;
  comm::work_together(world, "the checkpoint to resume from", [&] { value = digest_file(manifest, {}); });
  require_same(
      value, "checkpoint to resume from", world,
      [&](size_t rank, const auto& host, const auto& first_host, const auto& theirs, const auto& first) {
        return fmt::format(
            "[resume] rank {} on {} sees a different {} than rank 0 on {}: {} against {}; checkpoints must "
            "be in a folder that all hosts share",
            rank, host, cut_path(manifest.string()), first_host, theirs, first);
      });
}

void agree_on_output(const Path& out, comm::World& world) {
  if (!spans_processes(world)) return;
  // A name that was never looked up before, because network file systems cache missing names for a while.
  std::string name = fmt::format(".shared-{}-{:08x}", getpid(), std::random_device()());
  name = world.exchange(name, "name of a file in the output folder").front();
  comm::work_together(world, "a file in the output folder", [&] {
    if (world.rank() == 0) File::create(out / name);
  });
  bool seen = file_exists(out / name);
  for (int tries = 0; !seen && tries < 10; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    seen = file_exists(out / name);
  }
  const std::string host =
      comm::first_problem(world, seen ? "" : fmt::format("rank {} on {}", world.rank(), host_name()),
                          "ranks that see the output folder");
  if (world.rank() == 0) remove_file(out / name);
  if (host.empty()) return;
  comm::fail_together(
      world, 0, ErrorKind::usage,
      fmt::format(
          "[train] {} does not see the --out folder of rank 0, {}; checkpoints (--save-every) need a folder "
          "that all hosts share",
          host, cut_path(out.string())));
}

WeightAgreement::WeightAgreement(const std::vector<nn::Parameter>& params, const comm::World& world)
    : parts_(spans_processes(world) ? params.size() : 0) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].name = params[i].name;
    by_name_[parts_[i].name] = &parts_[i];
  }
}

void WeightAgreement::add(const nn::Parameter& param, int64_t begin, std::span<const float> values) {
  if (parts_.empty()) return;
  Part& part = *by_name_.at(param.name);
  const uint64_t place = hash_of(fmt::format("{} {}", begin, values.size()));
  part.place += place;
  part.values += hash_of(fmt::format("{} {}", place, checkpoint::checksum_of(std::as_bytes(values))));
}

void WeightAgreement::agree(const Path& model, comm::World& world) const {
  if (parts_.empty()) return;
  std::vector<uint64_t> mine;
  for (const Part& part : parts_) mine.insert(mine.end(), {part.place, part.values});
  const size_t bytes = mine.size() * sizeof(uint64_t);
  const std::vector<std::string> all =
      world.exchange({reinterpret_cast<const char*>(mine.data()), bytes}, "hashes of the weights");
  std::map<std::pair<size_t, uint64_t>, std::pair<uint64_t, int>> known;  // (parameter, place): values, rank
  for (int rank = 0; rank < world.size(); ++rank) {
    std::vector<uint64_t> theirs(mine.size());
    ensure(all[size_t(rank)].size() == bytes, "[train] rank {} has a different number of parameters", rank);
    std::memcpy(theirs.data(), all[size_t(rank)].data(), bytes);
    for (size_t i = 0; i < parts_.size(); ++i) {
      const uint64_t place = theirs[2 * i], values = theirs[2 * i + 1];
      const auto [first, is_new] = known.try_emplace({i, place}, values, rank);
      if (place == 0 || is_new || first->second.first == values) continue;
      const int other = first->second.second;
      const std::vector<std::string> hosts = world.exchange(host_name(), "names of hosts");
      comm::fail_together(
          world, 0, ErrorKind::data,
          fmt::format("[train] rank {} on {} read different weights for {} than rank {} on {}, from {}; {}",
                      rank, hosts[size_t(rank)], parts_[i].name, other, hosts[size_t(other)],
                      cut_path(model.string()), kCopyFiles));
    }
  }
}

}  // namespace zeno::train
