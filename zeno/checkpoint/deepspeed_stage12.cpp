// Stages 1 and 2: the parameters of a group one after the other, the whole cut into equal parts, one per
// rank.
#include "zeno/base/error.h"
#include "zeno/checkpoint/deepspeed_layout.h"

namespace zeno::checkpoint {
namespace {

// partition_count is a number or one for each group.
void check_world(const PickleNode& optimizer, size_t files, const DeepSpeedFile& file) {
  const PickleNode& stated = file.at(optimizer, "partition_count");
  int64_t ranks = integer_of(&stated, 0);
  if (stated.list() != nullptr) {
    for (const PickleNode* one : stated.list()->items) {
      require(ranks == 0 || integer_of(one, 0) == ranks, ErrorKind::data,
              "[deepspeed] {}: groups are split over different numbers of ranks, as with experts (MoE), "
              "which is not supported",
              file.where());
      ranks = integer_of(one, 0);
    }
  }
  require(ranks == int64_t(files), ErrorKind::data,
          "[deepspeed] {}: is one of {} ranks, but there are files of ranks 0 to {}; files are missing, or "
          "belong to two runs in one folder",
          file.where(), ranks, files - 1);
}

// Adds this rank's part of every group.
void add_rank(const DeepSpeedFile& file, const PickleNode& optimizer,
              std::vector<DeepSpeedFlatStates>& groups) {
  const PickleNode& masters = file.at(optimizer, "single_partition_of_fp32_groups");
  const PickleNode& base = file.at(optimizer, "base_optimizer_state");
  const PickleNode* states = base.list() != nullptr ? &base : base.find("state");
  for (size_t g = 0; g < groups.size(); ++g) {
    const PickleNode* master = masters.at(int64_t(g));
    require(master != nullptr && master->tensor() != nullptr, ErrorKind::data,
            "[deepspeed] {}: has no fp32 weights of group {}", file.where(), g);
    groups[g][0].add(file.span(*master->tensor(), "single_partition_of_fp32_groups"));
    const PickleNode* state = states != nullptr ? states->at(int64_t(g)) : nullptr;
    for (const DeepSpeedState which : {DeepSpeedState::first_moment, DeepSpeedState::second_moment}) {
      const PickleTensor* moment = moment_of(state, which);
      if (moment != nullptr) groups[g][size_t(which)].add(file.span(*moment, name_of(which)));
    }
  }
}

// With parameter_alignment there is a gap behind a parameter.
int64_t gap_behind(const PickleNode* paddings, size_t group, size_t param) {
  const PickleNode* of_group = paddings != nullptr ? paddings->at(int64_t(group)) : nullptr;
  const int64_t gap = integer_of(of_group != nullptr ? of_group->at(int64_t(param)) : nullptr, 0);
  return gap > 0 && gap < 64 ? gap : 0;
}

// The order of param_shapes is that of the values. (param_slice_mappings is not: DeepSpeed 0.19 forgets there
// that round_robin_gradients moves parameters.)
void cut_group(const DeepSpeedFile& model, const PickleNode& shapes, const PickleNode* paddings, size_t group,
               const DeepSpeedFlatStates& flat, DeepSpeedContents& contents) {
  require(shapes.dict() != nullptr, ErrorKind::data, "[deepspeed] {}: param_shapes of group {} is not a dict",
          model.where(), group);
  int64_t at = 0;
  size_t number = 0;
  for (const auto& [key, value] : shapes.dict()->items) {
    require(key->text() != nullptr, ErrorKind::data, "[deepspeed] {}: a parameter has no name",
            model.where());
    DeepSpeedTensor& tensor = add_tensor(contents, *key->text(), shape_of(*value, model), model);
    for (const DeepSpeedState state : kDeepSpeedStates) {
      const DeepSpeedFlat& values = flat[size_t(state)];
      if (state != DeepSpeedState::master && values.count() == 0) continue;
      require(values.count() - at >= tensor.count(), ErrorKind::data,
              "[deepspeed] {}: group {} has {} values of {}, which end before {} does; with NVMe offload "
              "DeepSpeed keeps them elsewhere, which is not supported",
              model.where(), group, values.count(), name_of(state), tensor.name);
      values.cut(at, tensor.count(), tensor.states[size_t(state)]);
    }
    at += tensor.count() + gap_behind(paddings, group, number++);
  }
  const int64_t left = flat[0].count() - at;
  require(left < 2 * contents.run.ranks, ErrorKind::data,
          "[deepspeed] {}: param_shapes of group {} describes {} values, but there are {}; the files do not "
          "belong together",
          model.where(), group, at, flat[0].count());
}

}  // namespace

void read_flat_groups(const DeepSpeedFile& model, const DeepSpeedFiles& files, DeepSpeedContents& contents) {
  const PickleNode& shapes = model.at(model.torch.root(), "param_shapes");
  require(shapes.list() != nullptr, ErrorKind::data, "[deepspeed] {}: param_shapes is not a list",
          model.where());
  const size_t count = shapes.list()->items.size();
  std::vector<DeepSpeedFlatStates> groups(count);
  contents.run.ranks = int(files.optimizer.size());
  std::optional<DeepSpeedFile> first;  // its paddings are those of all
  for (const Path& path : files.optimizer) {
    DeepSpeedFile file(path, contents);
    const PickleNode& optimizer = file.at(file.torch.root(), "optimizer_state_dict");
    check_world(optimizer, files.optimizer.size(), file);
    add_rank(file, optimizer, groups);
    if (!first) first.emplace(std::move(file));
  }
  const PickleNode& optimizer = first->at(first->torch.root(), "optimizer_state_dict");
  contents.run.stage = stage_of(optimizer, 1);  // bf16 with fp32 accumulation does not say what it is
  const PickleNode& base = first->at(optimizer, "base_optimizer_state");
  const PickleNode* states = base.list() != nullptr ? &base : base.find("state");
  read_optimizer_numbers(optimizer, states != nullptr ? states->at(0) : nullptr, contents.run, *first);
  for (size_t g = 0; g < count; ++g)
    cut_group(model, *shapes.list()->items[g], optimizer.find("param_alignment_paddings"), g, groups[g],
              contents);
}

}  // namespace zeno::checkpoint
