// Stage 3: every parameter is cut into equal parts, the last ones padded; a rank keeps its parts one after
// the other.
#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/checkpoint/deepspeed_layout.h"

namespace zeno::checkpoint {
namespace {

struct Shard {
  int64_t held = 0;  // elements of a rank, padding included
  int64_t real = 0;  // of them that are the parameter's
};
Shard shard_of(int64_t count, int64_t ranks, int64_t rank) {
  const int64_t held = (count + ranks - 1) / ranks;
  return {held, std::clamp<int64_t>(count - rank * held, 0, held)};
}

// What the rank keeps, over all groups.
DeepSpeedFlatStates flat_of(const DeepSpeedFile& file, const PickleNode& optimizer) {
  DeepSpeedFlatStates flat;
  const PickleNode& groups = file.at(optimizer, "fp32_flat_groups");
  const PickleNode* inner = optimizer.find("optimizer_state_dict");
  const PickleNode* states = inner != nullptr ? inner->find("state") : nullptr;
  for (int64_t g = 0; groups.at(g) != nullptr; ++g) {
    const PickleTensor* master = groups.at(g)->tensor();
    require(master != nullptr, ErrorKind::data, "[deepspeed] {}: fp32 weights of group {} are not a tensor",
            file.where(), g);
    flat[0].add(file.span(*master, "fp32_flat_groups"));
    for (const DeepSpeedState which : {DeepSpeedState::first_moment, DeepSpeedState::second_moment}) {
      const PickleTensor* moment = moment_of(states != nullptr ? states->at(g) : nullptr, which);
      if (moment != nullptr) flat[size_t(which)].add(file.span(*moment, name_of(which)));
    }
  }
  return flat;
}

void check_rank(const DeepSpeedFile& file, const PickleNode& optimizer, size_t files, int64_t expected,
                const DeepSpeedFlatStates& flat) {
  const int64_t ranks = integer_of(optimizer.find("partition_count"), 0);
  require(ranks == int64_t(files), ErrorKind::data,
          "[deepspeed] {}: is one of {} ranks, but there are files of ranks 0 to {}; files are missing, or "
          "belong to two runs in one folder",
          file.where(), ranks, files - 1);
  for (const DeepSpeedState state : kDeepSpeedStates) {
    const int64_t held = flat[size_t(state)].count();
    if (state != DeepSpeedState::master && held == 0) continue;
    require(held == expected, ErrorKind::data,
            "[deepspeed] {}: holds {} values of {}, but param_shapes describes {}; with NVMe offload "
            "DeepSpeed keeps them elsewhere, which is not supported",
            file.where(), held, name_of(state), expected);
  }
}

std::vector<std::pair<std::string, std::vector<int64_t>>> listed(const DeepSpeedFile& model,
                                                                 const PickleNode& groups) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> all;
  for (int64_t g = 0; groups.at(g) != nullptr; ++g) {
    require(groups.at(g)->dict() != nullptr, ErrorKind::data,
            "[deepspeed] {}: param_shapes is not a list of dicts", model.where());
    for (const auto& [key, value] : groups.at(g)->dict()->items) {
      require(key->text() != nullptr, ErrorKind::data, "[deepspeed] {}: a parameter has no name",
              model.where());
      all.emplace_back(*key->text(), shape_of(*value, model));
    }
  }
  return all;
}

// A rank's part of a frozen parameter.
void add_fragment(const DeepSpeedFile& file, const PickleNode* fragment, int64_t ranks, int64_t rank,
                  DeepSpeedTensor& tensor) {
  const Shard shard = shard_of(tensor.count(), ranks, rank);
  require(fragment != nullptr && fragment->tensor() != nullptr, ErrorKind::data,
          "[deepspeed] {}: has no part of the frozen {}", file.where(), tensor.name);
  DeepSpeedFlat flat;
  flat.add(file.span(*fragment->tensor(), tensor.name));
  require(flat.count() >= shard.real, ErrorKind::data,
          "[deepspeed] {}: holds {} values of the frozen {}, expected {}", file.where(), flat.count(),
          tensor.name, shard.real);
  flat.cut(0, shard.real, tensor.states[0]);
}

}  // namespace

void read_sharded(const DeepSpeedFile& model, const DeepSpeedFiles& files, DeepSpeedContents& contents) {
  contents.run.stage = 3;
  const int64_t ranks = int64_t(files.optimizer.size());
  require(ranks == int64_t(files.model.size()), ErrorKind::data,
          "[deepspeed] {}: there are *_model_states.pt of {} ranks and *_optim_states.pt of {}; files are "
          "missing",
          files.folder.string(), files.model.size(), ranks);
  contents.run.ranks = int(ranks);
  const auto params = listed(model, model.at(model.torch.root(), "param_shapes"));
  int64_t held = 0;
  for (const auto& [name, shape] : params) {
    add_tensor(contents, name, shape, model);
    held += shard_of(contents.tensors.back().count(), ranks, 0).held;
  }
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const DeepSpeedFile file(files.optimizer[size_t(rank)], contents);
    const PickleNode& optimizer = file.at(file.torch.root(), "optimizer_state_dict");
    require(optimizer.find("ds_zero_partition_groups") == nullptr, ErrorKind::data,
            "[deepspeed] {}: is of a run with experts (MoE), which is not supported", file.where());
    const DeepSpeedFlatStates flat = flat_of(file, optimizer);
    check_rank(file, optimizer, files.optimizer.size(), held, flat);
    if (rank == 0) {
      const PickleNode* inner = optimizer.find("optimizer_state_dict");
      const PickleNode* states = inner != nullptr ? inner->find("state") : nullptr;
      read_optimizer_numbers(optimizer, states != nullptr ? states->at(0) : nullptr, contents.run, file);
    }
    int64_t at = 0;
    for (DeepSpeedTensor& tensor : contents.tensors) {
      const Shard shard = shard_of(tensor.count(), ranks, rank);
      for (const DeepSpeedState state : kDeepSpeedStates) {
        if (flat[size_t(state)].count() > 0)
          flat[size_t(state)].cut(at, shard.real, tensor.states[size_t(state)]);
      }
      at += shard.held;
    }
  }
}

void add_frozen_shards(const DeepSpeedFile& model, const DeepSpeedFiles& files, DeepSpeedContents& contents) {
  const PickleNode* shapes = model.torch.root().find("frozen_param_shapes");
  if (shapes == nullptr || shapes->dict() == nullptr || shapes->dict()->items.empty()) return;
  const size_t first = contents.tensors.size();
  for (const auto& [key, value] : shapes->dict()->items) {
    require(key->text() != nullptr, ErrorKind::data, "[deepspeed] {}: a parameter has no name",
            model.where());
    add_tensor(contents, *key->text(), shape_of(*value, model), model);
  }
  const int64_t ranks = int64_t(files.model.size());
  for (int64_t rank = 0; rank < ranks; ++rank) {
    std::optional<DeepSpeedFile> other;
    if (rank > 0) other.emplace(files.model[size_t(rank)], contents);
    const DeepSpeedFile& file = rank > 0 ? *other : model;
    const PickleNode& fragments = file.at(file.torch.root(), "frozen_param_fragments");
    size_t at = first;
    for (const auto& [key, value] : shapes->dict()->items)
      add_fragment(file, fragments.find(*key->text()), ranks, rank, contents.tensors[at++]);
  }
}

}  // namespace zeno::checkpoint
