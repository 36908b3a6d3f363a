// Stage 0: the whole module in one file, and the optimizer of torch with its states by number, not by name.
#include <algorithm>
#include <map>

#include "zeno/base/error.h"
#include "zeno/checkpoint/deepspeed_layout.h"

namespace zeno::checkpoint {
namespace {

// One parameter as the optimizer knows it: its group and its states.
struct Numbered {
  size_t group = 0;
  const PickleNode* state = nullptr;
  const PickleTensor* master = nullptr;  // 16-bit training keeps it beside
};

// In the order of the optimizer's groups. Parameters that were never updated have no state and are left out.
std::vector<Numbered> numbered(const PickleNode& torch_optimizer, const PickleNode* masters) {
  std::vector<Numbered> all;
  const PickleNode* states = torch_optimizer.find("state");
  const PickleNode* groups = torch_optimizer.find("param_groups");
  if (states == nullptr || groups == nullptr || groups->list() == nullptr) return all;
  for (size_t g = 0; g < groups->list()->items.size(); ++g) {
    const PickleNode* params = groups->list()->items[g]->find("params");
    if (params == nullptr || params->list() == nullptr) continue;
    for (size_t i = 0; i < params->list()->items.size(); ++i) {
      Numbered one{.group = g};
      one.state = states->at(integer_of(params->list()->items[i], -1));
      const PickleNode* group = masters != nullptr ? masters->at(int64_t(g)) : nullptr;
      const PickleNode* master = group != nullptr ? group->at(int64_t(i)) : nullptr;
      if (master != nullptr) one.master = master->tensor();
      if (moment_of(one.state, DeepSpeedState::first_moment) != nullptr) all.push_back(one);
    }
  }
  return all;
}

// Which tensor of the module each is: within a group they come in the module's order, so where no two groups
// hold tensors of one shape, and all tensors of a shape are in a group, shape and order decide. Empty: they
// do not.
std::vector<std::pair<DeepSpeedTensor*, Numbered>> matched(const std::vector<Numbered>& states,
                                                           DeepSpeedContents& contents) {
  std::map<std::vector<int64_t>, std::vector<Numbered>> by_shape;
  for (const Numbered& one : states)
    by_shape[moment_of(one.state, DeepSpeedState::first_moment)->shape].push_back(one);
  std::vector<std::pair<DeepSpeedTensor*, Numbered>> pairs;
  for (const auto& [shape, same] : by_shape) {
    std::vector<DeepSpeedTensor*> tensors;
    for (DeepSpeedTensor& tensor : contents.tensors) {
      if (tensor.shape == shape) tensors.push_back(&tensor);
    }
    const size_t group = same[0].group;
    const bool one_group =
        std::ranges::all_of(same, [group](const Numbered& one) { return one.group == group; });
    if (tensors.size() != same.size() || !one_group) return {};
    for (size_t i = 0; i < same.size(); ++i) pairs.emplace_back(tensors[i], same[i]);
  }
  return pairs;
}

}  // namespace

void read_whole(const DeepSpeedFile& model, DeepSpeedContents& contents) {
  contents.run.stage = 0;
  add_module(model, contents);
  const PickleNode* optimizer = model.torch.root().find("optimizer");
  if (optimizer == nullptr || optimizer->dict() == nullptr || optimizer->dict()->items.empty()) return;
  require(optimizer->find("fp32_groups_flat") == nullptr, ErrorKind::data,
          "[deepspeed] {}: keeps fp32 weights in one flat tensor without names (16 bit, stage 0, fused "
          "optimizer), which is not supported; save with ZeRO stage 1, 2 or 3",
          model.where());
  const PickleNode* inner = optimizer->find("optimizer_state_dict");
  const std::vector<Numbered> states =
      numbered(inner != nullptr ? *inner : *optimizer, optimizer->find("fp32_groups"));
  read_optimizer_numbers(*optimizer, states.empty() ? nullptr : states[0].state, contents.run, model);
  const auto pairs = matched(states, contents);
  if (pairs.empty()) {
    contents.run.without_moments = states.empty()
                                       ? "its optimizer keeps no Adam moments"
                                       : "it does not say which moments belong to which parameter (stage 0)";
    return;
  }
  for (const auto& [tensor, one] : pairs) {
    for (const DeepSpeedState state : {DeepSpeedState::first_moment, DeepSpeedState::second_moment}) {
      const PickleTensor* moment = moment_of(one.state, state);
      require(moment != nullptr && moment->shape == tensor->shape, ErrorKind::data,
              "[deepspeed] {}: the {} of {} is missing or has another shape", model.where(), name_of(state),
              tensor->name);
      tensor->states[size_t(state)] = {model.span(*moment, tensor->name)};
    }
    if (one.master == nullptr) continue;
    require(one.master->shape == tensor->shape, ErrorKind::data,
            "[deepspeed] {}: the fp32 weights of {} have another shape", model.where(), tensor->name);
    tensor->states[0] = {model.span(*one.master, tensor->name)};
  }
}

}  // namespace zeno::checkpoint
