// Ranks agree before they train. Processes of a job read their config, model and data for themselves, often
// each host its own copies; a difference there would silently give the wrong model. So they compare, and a
// difference ends the run on all ranks with one line that names the rank, its host and the file
// (docs/faults.md says what is compared and what can slip through). Ranks that are threads see the same files
// and compare nothing. All calls but WeightAgreement::add are collective.
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

// The program, the config and the files, before anything else is done with them. Of the processes of a host
// that see the same files one reads them.
void agree_on_inputs(const config::ParsedConfig& parsed, comm::World& world);

// All tokens of a dataset. `flag` names it.
void agree_on_tokens(const data::TokenSource& tokens, std::string_view flag, comm::World& world);

// Every rank must see the checkpoint that rank 0 resumes from, as it is there.
void agree_on_checkpoint(const Path& folder, comm::World& world);
// A checkpoint of DeepSpeed to resume from, each rank from its own copy; null: this rank found none.
void agree_on_deepspeed(const checkpoint::DeepSpeedCheckpoint* checkpoint, comm::World& world);

// Every rank must see the folder `out` of rank 0, which is there: each writes its part of a checkpoint into
// it.
void agree_on_output(const Path& out, comm::World& world);

// The weights that ranks read from their model folders: where several read the same parts of a parameter they
// must have read the same values.
class WeightAgreement {
 public:
  WeightAgreement(const std::vector<nn::Parameter>& params, const comm::World& world);

  // From any thread.
  void add(const nn::Parameter& param, int64_t begin, std::span<const float> values);
  void agree(const Path& model, comm::World& world) const;

 private:
  struct Part {
    std::string name;
    std::atomic<uint64_t> place{0}, values{0};  // sums of hashes: parts come in any order
  };
  std::vector<Part> parts_;  // none where there is nothing to compare
  std::unordered_map<std::string_view, Part*> by_name_;
};

}  // namespace zeno::train
