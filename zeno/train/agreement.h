// Checks before training that all ranks have the same inputs. Each process of a job reads the config, model
// and data itself, often from its host's own copies; a difference would silently give a wrong model. So they
// compare, and a difference ends the run on all ranks with one line that names the rank, its host and the
// file (docs/faults.md says what is compared and what is not detected). Ranks that are threads see the same
// files and compare nothing. All calls except WeightAgreement::add are collective.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "zeno/checkpoint/deepspeed.h"
#include "zeno/comm/world.h"
#include "zeno/config/config_parser.h"
#include "zeno/data/source.h"
#include "zeno/nn/layer.h"

namespace zeno::train {

// Compares the program, the config and the files, before they are used. Of the processes on a host that see
// the same files, one reads them.
void agree_on_inputs(const config::ParsedConfig& parsed, comm::World& world);

// Compares all tokens of a dataset. `flag` names it.
void agree_on_tokens(const data::TokenSource& tokens, std::string_view flag, comm::World& world);

// Checks that every rank sees the same checkpoint that rank 0 resumes from.
void agree_on_checkpoint(const Path& folder, comm::World& world);
// Compares the DeepSpeed checkpoints to resume from, since each rank may read its own copy; null: this rank
// found none.
void agree_on_deepspeed(const checkpoint::DeepSpeedCheckpoint* checkpoint, comm::World& world);

// Checks that every rank sees the folder `out` of rank 0, which must exist: each rank writes its part of a
// checkpoint into it.
void agree_on_output(const Path& out, comm::World& world);

// Compares the weights that ranks read from their model folders: ranks that read the same part of a parameter
// must have read the same values.
class WeightAgreement {
 public:
  WeightAgreement(const std::vector<nn::Parameter>& params, const comm::World& world);

  // May be called from any thread.
  void add(const nn::Parameter& param, int64_t begin, std::span<const float> values);
  void agree(const Path& model, comm::World& world) const;

 private:
  struct Part {
    std::string name;
    std::atomic<uint64_t> place{0}, values{0};  // sums of hashes: parts come in any order
  };
  std::vector<Part> parts_;  // empty if there is nothing to compare
  std::unordered_map<std::string_view, Part*> by_name_;
};

}  // namespace zeno::train
