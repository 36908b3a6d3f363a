// What a training run is, once nothing of it is open any more. A config leaves values open that the device, a
// checkpoint, the model, the number of ranks or the data decide. Here they are settled, each as soon as what
// decides it is known.
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
  // Collective: all ranks come to the same, or all throw. Rank 0 locks the output folder and leaves the lock
  // in `lock`. Reads the data, but no weights.
  RunSetup(config::ParsedConfig config, comm::World& world, std::unique_ptr<const FolderLock>& lock);
  RunSetup(const RunSetup&) = delete;
  RunSetup& operator=(const RunSetup&) = delete;

  // Each member is made from those above it.
  config::ParsedConfig parsed;  // final when the constructor returns
  const model::ModelConfig model;
  const size_t warnings_told;  // of parsed.warnings: by who made the config
  PeerFolder peers;
  const std::optional<ResumePoint> resume;
  const int64_t seq_len;
  std::optional<ClockLimit> clock;  // not yet begun
  const RunData data;
  const int64_t steps;

 private:
  // Each settles keys of `parsed`.
  std::optional<ResumePoint> find_resume(comm::World& world);
  int64_t settle_sizes(comm::World& world);
  RunData open_data(comm::World& world, const std::unique_ptr<const FolderLock>& lock);
  int64_t settle_steps();

  void check(comm::World& world, const std::unique_ptr<const FolderLock>& lock);
};

}  // namespace zeno::train
