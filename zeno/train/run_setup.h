// A training run with everything decided. A config may leave values open that depend on the device, a
// checkpoint, the model, the number of ranks or the data. They are decided here, each as soon as what it
// depends on is known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "zeno/comm/world.h"
#include "zeno/config/config_parser.h"
#include "zeno/device/clock_limit.h"
#include "zeno/model/config.h"
#include "zeno/train/dataset_options.h"
#include "zeno/train/saving/folder_lock.h"
#include "zeno/train/saving/peer_folder.h"
#include "zeno/train/saving/resume.h"

namespace zeno::train {

class RunSetup {
 public:
  // Collective: all ranks get the same values, or all throw. Rank 0 locks the output folder and leaves the
  // lock in `lock`. Reads the data, but no weights.
  RunSetup(config::ParsedConfig config, comm::World& world, std::unique_ptr<const FolderLock>& lock);
  RunSetup(const RunSetup&) = delete;
  RunSetup& operator=(const RunSetup&) = delete;

  // Each member is initialised from those above it.
  config::ParsedConfig parsed;  // final when the constructor returns
  const model::ModelConfig model;
  const size_t warnings_told;  // how many of parsed.warnings the user has seen already
  PeerFolder peers;
  const std::optional<ResumePoint> resume;
  const int64_t seq_len;
  std::optional<ClockLimit> clock;  // not started yet
  const RunData data;
  const int64_t steps;

 private:
  // Each of these decides keys of `parsed`.
  std::optional<ResumePoint> find_resume(comm::World& world);
  int64_t settle_sizes(comm::World& world);
  RunData open_data(comm::World& world, const std::unique_ptr<const FolderLock>& lock);
  int64_t settle_steps();

  void check(comm::World& world, const std::unique_ptr<const FolderLock>& lock);
};

}  // namespace zeno::train
