// compile(): walks the schedule once and emits gathers, computation, gradients and the optimizer step.
// compile_evaluation() walks its forward half.
#include <map>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/base/math.h"
#include "zeno/zero/program/activation_plan.h"
#include "zeno/zero/program/gradient_plan.h"
#include "zeno/zero/program/optimizer_plan.h"
#include "zeno/zero/program/pipeline_plan.h"
#include "zeno/zero/program/program.h"
#include "zeno/zero/program/program_builder.h"
#include "zeno/zero/program/residency.h"
#include "zeno/zero/program/schedule.h"

namespace zeno::zero {
namespace {

class Compiler {
 public:
  Compiler(const CompileInput& input, bool trains)
      : input_(input),
        trains_(trains),
        segments_(make_segments(input)),
        steps_(trains ? make_schedule(input, segments_) : make_evaluation_schedule(input)),
        residency_(plan_residency(input, steps_)),
        activations_(input, steps_, builder_),
        pipeline_(input, steps_, builder_),
        gradients_(input, steps_, builder_),
        optimizer_(input, builder_),
        resident_(input.units.groups.size(), kNoRegion),
        fresh_(input.units.groups.size(), false),
        segment_of_(input.model.layers.size()) {
    for (int s = 0; s < int(segments_.size()); ++s) {
      for (int layer = segments_[s].first; layer <= segments_[s].last; ++layer) segment_of_[layer] = s;
    }
  }

  Program run() {
    builder_.add({.action = Start{}});
    if (trains_) optimizer_.bring_ahead();
    for (int s = 0; s < int(steps_.size()); ++s) {
      issue_gathers(s);
      pipeline_.before(s, outputs_, stream_);
      activations_.before(s, outputs_);
      emit(s);
      pipeline_.after(s, outputs_, stream_);
      activations_.after(s, outputs_);
      if (trains_) gradients_.after(s);
    }
    pipeline_.flush();
    if (trains_) gradients_.flush();
    if (trains_) pipeline_.sum_tied();
    finish_step();
    Program program = builder_.finish();
    program.trains = trains_;
    return program;
  }

 private:
  void issue_gathers(int s) {
    for (; next_gather_ < residency_.size() && residency_[next_gather_].issue <= s; ++next_gather_) {
      const Residency& r = residency_[next_gather_];
      const Group& group = input_.units.groups[r.group];
      const RegionId kept = group.moves ? bring_params(r.group) : kNoRegion;
      RegionId region = kept;
      if (r.gathered == Gathered::into_region) {
        region =
            builder_.region(Purpose::gathered, group.gathered_bytes(group.padded(), input_.policy.compute));
      }
      upcoming_[{r.group, r.first}] = region;
      if (r.gathered != Gathered::never) gather(r, region, kept);
    }
  }

  // Parameters that updates left stale are completed in their storage, once per step; sharded parameters are
  // assembled for each interval.
  void gather(const Residency& r, RegionId region, RegionId kept) {
    const Group& group = input_.units.groups[r.group];
    const int mb = steps_[r.first].micro_batch;
    if (group.stale() && !fresh_[r.group])
      gather(r.group, kNoRegion, kNoRegion, group.optimizer, group.params, mb);
    fresh_[r.group] = true;
    if (r.gathered != Gathered::into_region) return;
    if (group.int8) encode(r.group, region, kept, mb);
    gather(r.group, region, kept, group.params, {}, mb);
  }

  void encode(int g, RegionId region, RegionId kept, int mb) {
    builder_.add({.action = Encode{.group = g, .from = kept, .to = region},
                  .lane = gather_lane(),
                  .unit = input_.units.groups[g].unit,
                  .micro_batch = mb});
  }

  // Gathers from parts over some axes to parts over fewer. Across hosts first, so that every byte reaches a
  // host once and its ranks get it from each other.
  void gather(int g, RegionId region, RegionId kept, comm::Axes from, comm::Axes to, int mb) {
    constexpr comm::Axes kOuter{comm::Axis::outer};
    const comm::Axes missing = from - to;
    // Encode has put this rank's part in its place.
    const bool in_place = region == kNoRegion || input_.units.groups[g].int8;
    if (in_place) kept = kNoRegion;
    if (!missing.has(kOuter) || missing == kOuter)
      return gather(g, region, kept, from, missing, in_place, mb);
    gather(g, region, kept, from, kOuter, in_place, mb);
    gather(g, region, kNoRegion, from - kOuter, missing - kOuter, true, mb);
  }

  void gather(int g, RegionId region, RegionId kept, comm::Axes sharded, comm::Axes over, bool in_place,
              int mb) {
    const Group& group = input_.units.groups[g];
    const auto& chunks = group.partition.chunks();
    const auto elements = [&](int c) { return group.partition.part(chunks[c], 0, sharded - over).count; };
    for (int c = 0; c < int(chunks.size());) {
      ChunkRange range{g, c, 0, region};
      int64_t sum = 0;
      do {
        sum += elements(c++);
        ++range.count;
      } while (c < int(chunks.size()) && sum + elements(c) <= input_.policy.gather_bucket);
      builder_.add({.action = Gather{over, sharded, range, kept, in_place},
                    .lane = gather_lane(),
                    .unit = group.unit,
                    .micro_batch = mb});
    }
  }

  Lane gather_lane() const { return input_.policy.overlap ? Lane::gather : Lane::compute; }

  // Fetches what this rank keeps of a group's parameters, from disk or host to where it can be used.
  RegionId bring_params(int g) {
    const Group& group = input_.units.groups[g];
    const size_t bytes = group.stored_bytes(group.partition.shard(group.params), input_.policy.compute);
    RegionId region = kNoRegion;
    if (group.tier == Tier::disk) {
      // Extents are whole pages, so the last one ends after the parameters.
      region = builder_.region(Purpose::staging, round_up(bytes, kDirectAlign) + kDirectAlign, Tier::host);
      for (int c = input_.units.first_chunk[g]; c < input_.units.first_chunk[g + 1]; ++c) {
        builder_.add({.action = Read{.payload = {Moved::params, g, c}, .to = region},
                      .lane = Lane::read,
                      .unit = group.unit});
      }
    }
    if (!input_.policy.offload.far_host) return region;
    const RegionId on_device = builder_.region(Purpose::gathered, bytes);
    builder_.add({.action = Fetch{.payload = {Moved::params, g}, .from = region, .to = on_device},
                  .lane = gather_lane(),
                  .unit = group.unit});
    return on_device;
  }

  // Decodes right before use: cells are small and gathered ahead; decoded weights are large.
  RegionId decode(int group, RegionId cells) {
    const Group& g = input_.units.groups[group];
    const RegionId region =
        builder_.region(Purpose::gathered, size_t(g.padded()) * size_of(input_.policy.compute));
    builder_.add({.action = Decode{.group = group, .from = cells, .to = region}, .unit = g.unit});
    return region;
  }

  void emit(int s) {
    switch (steps_[s].pass) {
      case Pass::forward: {
        Forward op = forward(s);
        return emit_parts(s, op, op.part, join_of(op, false));
      }
      case Pass::recompute: {
        Recompute op = recompute(s);
        return emit_parts(s, op, op.forward.part, join_of(op.forward, false));
      }
      case Pass::loss:
        return add(s, loss(s));
      case Pass::backward: {
        Backward op = backward(s);
        return emit_parts(s, op, op.part, join_of(op, true));
      }
    }
    fail(ErrorKind::internal, "[program] step {} of the schedule is of no kind", s);
  }

  void add(int s, Action action, Lane lane = Lane::compute) {
    builder_.add({.action = std::move(action),
                  .lane = lane,
                  .unit = steps_[s].layer,
                  .micro_batch = steps_[s].micro_batch});
  }

  // Emits all parts of a pass, with a joint between two parts; `part` is the field of `op`.
  template <class Pass>
  void emit_parts(int s, const Pass& op, Part& part, Exchange join) {
    const nn::Layer& layer = *input_.model.layers[steps_[s].layer];
    part.count = layer.parts(input_.shape);
    for (; part.index < part.count; ++part.index) {
      add(s, op);
      if (part.last()) break;
      join.part = part.index;
      join.elements = layer
                          .joint({.shape = input_.shape,
                                  .compute = input_.policy.compute,
                                  .recompute = join.keep,
                                  .backward = join.backward,
                                  .part = join.part})
                          .send.count();
      add(s, join, input_.policy.overlap ? Lane::joint : Lane::compute);
    }
  }

  template <class Pass>
  static Exchange join_of(const Pass& op, bool backward) {
    return {.over = {comm::Axis::context},
            .backward = backward,
            .keep = op.keep,
            .saved = op.saved,
            .workspace = op.workspace};
  }

  std::vector<Binding> bind_params(int s) {
    std::vector<Binding> params;
    for (int group : param_groups(input_, steps_[s])) {
      const auto fresh = upcoming_.find({group, s});
      if (fresh != upcoming_.end()) {
        const bool cells = input_.units.groups[group].coded();
        resident_[group] = cells ? decode(group, fresh->second) : fresh->second;
      }
      params.push_back({group, resident_[group]});
    }
    return params;
  }

  size_t activation_bytes() const {
    return size_t(input_.shape.rows() * input_.model.hidden) * size_of(input_.policy.compute);
  }
  RegionId new_activation() { return builder_.region(Purpose::activations, activation_bytes()); }
  const Segment& segment(int layer) const { return segments_[segment_of_[layer]]; }
  nn::LayerSizes sizes(int layer) const {
    return input_.model.layers[layer]->sizes(input_.shape, input_.policy.compute, segment(layer).keep);
  }
  // The output of `layer` (-1: the tokens, which have no region).
  RegionId output(int layer, int mb) const { return layer < 0 ? kNoRegion : outputs_.at({layer, mb}); }

  RegionId new_workspace(int layer) { return builder_.region(Purpose::workspace, sizes(layer).workspace); }
  RegionId new_saved(int layer, int mb) {
    return saved_[{layer, mb}] = builder_.region(Purpose::activations, sizes(layer).saved);
  }

  Forward forward(int s) {
    const int layer = steps_[s].layer, mb = steps_[s].micro_batch;
    Forward op{.keep = segment(layer).keep, .params = bind_params(s)};
    op.x = output(layer - 1, mb);
    op.y = outputs_[{layer, mb}] = new_activation();
    op.workspace = new_workspace(layer);
    const bool saves = !segment(layer).recompute && layer >= input_.units.first_trained();
    if (saves) op.saved = new_saved(layer, mb);
    return op;
  }

  // The last layer of a segment runs again only for what it saves; its output is not needed.
  Recompute recompute(int s) {
    const int layer = steps_[s].layer, mb = steps_[s].micro_batch;
    Forward op{.keep = segment(layer).keep, .params = bind_params(s)};
    op.x = output(layer - 1, mb);
    if (layer < segment(layer).last) op.y = outputs_[{layer, mb}] = new_activation();
    op.workspace = new_workspace(layer);
    op.saved = new_saved(layer, mb);
    return {std::move(op)};
  }

  // The gradient takes the place of the last activation and flows back through every layer in that region.
  Loss loss(int s) {
    const int layer = steps_[s].layer, mb = steps_[s].micro_batch;
    Loss op{.x = output(layer - 1, mb), .params = bind_params(s)};
    if (trains_) {
      op.grads = gradients_.bind(s);
      op.dx = stream_[mb] = op.x;
    }
    op.workspace =
        builder_.region(Purpose::logits, input_.model.loss->workspace(input_.shape, input_.policy.compute));
    return op;
  }

  Backward backward(int s) {
    const int layer = steps_[s].layer, mb = steps_[s].micro_batch;
    Backward op{.keep = segment(layer).keep, .params = bind_params(s), .grads = gradients_.bind(s)};
    op.x = output(layer - 1, mb);
    op.dy = stream_.at(mb);
    op.saved = saved_.at({layer, mb});
    op.workspace = new_workspace(layer);
    return op;
  }

  void finish_step() {
    const int last = input_.units.loss_layer();
    if (input_.units.stage.is_last()) builder_.add({.action = SumLosses{}, .unit = last});
    if (trains_) optimizer_.send_gradients();
    if (trains_) scan_gradients();
    // A step ends on the compute lane. If updates follow, other work can overlap the norm.
    const bool beside = trains_ && !input_.norm_axes().empty() && input_.policy.overlap;
    builder_.add(
        {.action = Norm{input_.norm_axes()}, .lane = beside ? Lane::reduce : Lane::compute, .unit = last});
    builder_.add({.action = Finish{}, .unit = last});
    if (trains_) optimizer_.update_all();
  }

  void scan_gradients() {
    for (int g = 0; g < int(input_.units.groups.size()); ++g) {
      const Group& group = input_.units.groups[g];
      const bool saved_here = group.stage == input_.units.stage.index;
      if (group.trainable && saved_here) builder_.add({.action = Scan{g}, .unit = group.unit});
    }
  }

  const CompileInput& input_;
  bool trains_;
  std::vector<Segment> segments_;
  std::vector<ComputeStep> steps_;
  std::vector<Residency> residency_;
  ProgramBuilder builder_;
  ActivationPlan activations_;
  PipelinePlan pipeline_;
  GradientPlan gradients_;
  OptimizerPlan optimizer_;
  size_t next_gather_ = 0;
  // (group, first step) → the region that its gather fills, or its storage
  std::map<std::pair<int, int>, RegionId> upcoming_;
  std::vector<RegionId> resident_;  // of each group at the current step
  std::vector<bool> fresh_;         // groups whose storage this step has completed
  std::vector<int> segment_of_;
  std::map<std::pair<int, int>, RegionId> outputs_, saved_;  // by (layer, micro-batch)
  std::map<int, RegionId> stream_;                           // gradient of the activations, by micro-batch
};

}  // namespace

Program compile(const CompileInput& input) { return Compiler(input, input.policy.trains).run(); }

Program compile_evaluation(const CompileInput& input) { return Compiler(input, false).run(); }

}  // namespace zeno::zero
