#include "zeno/zero/program/schedule.h"

#include <algorithm>

#include "zeno/zero/program/program_builder.h"

namespace zeno::zero {
namespace {

class Scheduler {
 public:
  // Without segments there is no backward.
  Scheduler(const CompileInput& input, const std::vector<Segment>& segments)
      : input_(input), segments_(segments) {}

  std::vector<ComputeStep> run() {
    const int k = input_.policy.micro_batches;
    if (input_.units.stage.count > 1) {
      in_a_pipeline(k);
    } else if (input_.policy.order == Order::vertical) {
      pass(0, k);
    } else {
      for (int mb = 0; mb < k; ++mb) pass(mb, mb + 1);
    }
    return std::move(steps_);
  }

 private:
  // One forward, one backward: a stage runs as many micro-batches ahead as there are stages after it, and
  // keeps activations of no more than these.
  void in_a_pipeline(int k) {
    const Stage& stage = input_.units.stage;
    const int ahead = std::min(k, stage.count - 1 - stage.index);
    for (int mb = 0; mb < ahead; ++mb) forward(mb, mb + 1);
    for (int mb = 0; mb < k; ++mb) {
      if (mb + ahead < k) forward(mb + ahead, mb + ahead + 1);
      backward(mb, mb + 1);
    }
  }

  // All layers forward, and segments backward, over micro-batches [begin, end), layer by layer.
  void pass(int begin, int end) {
    forward(begin, end);
    backward(begin, end);
  }

  void forward(int begin, int end) {
    const Stage& stage = input_.units.stage;
    const int loss = input_.units.loss_layer();
    for (int layer = stage.first; layer < stage.end; ++layer) {
      for (int mb = begin; mb < end; ++mb) add(layer == loss ? Pass::loss : Pass::forward, layer, mb);
      ++phase_;
    }
  }

  void backward(int begin, int end) {
    const int trained = input_.units.first_trained();
    for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
      if (segment->last < trained) break;
      for (int mb = begin; mb < end; ++mb) {
        for (int layer = segment->first; segment->recompute && layer <= segment->last; ++layer) {
          add(Pass::recompute, layer, mb);
        }
        const int first = std::max(segment->first, trained);
        for (int layer = segment->last; layer >= first; --layer) add(Pass::backward, layer, mb);
      }
      ++phase_;
    }
  }

  // Each step is at least one instruction, so this fails early when the program would be too long.
  void add(Pass pass, int layer, int mb) {
    check_instructions(int64_t(steps_.size()) + 1);
    steps_.push_back({pass, layer, mb, phase_});
  }

  const CompileInput& input_;
  const std::vector<Segment> segments_;
  std::vector<ComputeStep> steps_;
  int phase_ = 0;
};

}  // namespace

// Blocks are the layers that save something. The first ones recompute most: their backward comes last, when
// what later blocks saved is free again.
std::vector<Segment> make_segments(const CompileInput& input) {
  const Policy& policy = input.policy;
  std::vector<Segment> segments;
  int blocks = 0;
  const int end = std::min(input.units.stage.end, input.units.loss_layer());
  for (int layer = 0; layer < end; ++layer) {
    const nn::LayerSizes sizes =
        input.model.layers[layer]->sizes(input.shape, policy.compute, nn::Recompute::none);
    nn::Recompute mode = nn::Recompute::none;
    if (sizes.saved > 0) {
      const bool heavy = policy.recompute_blocks < 0 || blocks < policy.recompute_blocks;
      mode = heavy ? policy.recompute : policy.recompute_rest;
      ++blocks;
    }
    if (!input.units.stage.has(layer)) continue;
    const bool recompute = mode == nn::Recompute::full;
    const bool joins = recompute && !segments.empty() && segments.back().recompute &&
                       layer - segments.back().first < std::max(1, policy.recompute_every);
    if (joins) {
      segments.back().last = layer;
    } else {
      segments.push_back({layer, layer, recompute, recompute ? nn::Recompute::none : mode});
    }
  }
  return segments;
}

std::vector<ComputeStep> make_schedule(const CompileInput& input, const std::vector<Segment>& segments) {
  return Scheduler(input, segments).run();
}

std::vector<ComputeStep> make_evaluation_schedule(const CompileInput& input) {
  return Scheduler(input, {}).run();
}

}  // namespace zeno::zero
