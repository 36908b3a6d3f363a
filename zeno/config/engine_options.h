// From the user's configuration to what the engine takes.
#pragma once

#include "zeno/comm/world.h"
#include "zeno/config/config_parser.h"
#include "zeno/kernels/optimizer.h"
#include "zeno/zero/engine.h"

namespace zeno::config {

// Number of snapshots kept in the memory of peers: the newest whole one, and the one before or the one being
// written.
inline constexpr int kPeerSnapshots = 2;

// --seq-len, or the model's context up to a length that is practical on any machine.
int64_t sequence_length(const RunConfig& run, int64_t max_positions);

// The mesh that the config asks for with this number of ranks; and that of a run.
comm::MeshRequest mesh_request(const TrainConfig& config, int ranks, int ranks_per_host);
comm::Mesh mesh_of(const TrainConfig& config, const comm::World& world);
// How many of the ranks see different sequences, whatever the groups are.
int batch_ranks(const TrainConfig& config, int ranks);

zero::EngineOptions engine_options(const TrainConfig& config, const comm::Mesh& mesh, int64_t seq_len,
                                   Device device = {});

// Where a rank computes: the CPU, or the GPU with its local rank.
Device device_of(const RunConfig& run, int local_rank);

// The folders for state on disk must be there: a path that was meant for another machine would otherwise
// become a folder on whatever disk is mounted at /. Throws a usage Error that names the key.
void check_disk_folders(const ParsedConfig& parsed);

// Hyperparameters of the optimizer step that follows `completed` steps.
OptimizerHyper hyper_after(const TrainConfig& config, int64_t completed);

}  // namespace zeno::config
