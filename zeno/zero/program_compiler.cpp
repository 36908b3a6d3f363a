// compile(): walks the schedule once and emits gathers, computation, gradients and the optimizer step.
// compile_evaluation() walks its forward half.
#include <map>
#include <utility>

#include "zeno/base/file.h"
#include "zeno/base/math.h"
#include "zeno/zero/activation_plan.h"
#include "zeno/zero/gradient_plan.h"
#include "zeno/zero/optimizer_plan.h"
#include "zeno/zero/program.h"
#include "zeno/zero/program_builder.h"
#include "zeno/zero/residency.h"
#include "zeno/zero/schedule.h"

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
        gradients_(input, steps_, builder_),
        optimizer_(input, builder_),
        resident_(input.units.groups.size(), kNoRegion),
        segment_of_(input.model.layers.size()) {
    for (int s = 0; s < int(segments_.size()); ++s) {
      for (int layer = segments_[s].first; layer <= segments_[s].last; ++layer) segment_of_[layer] = s;
    }
  }

  Program run() {
    builder_.add({.op = Op::start});
    if (trains_) optimizer_.bring_ahead();
    for (int s = 0; s < int(steps_.size()); ++s) {
      issue_gathers(s);
      activations_.before(s, outputs_);
      emit(s);
      activations_.after(s, outputs_);
      if (trains_) gradients_.after(s);
    }
    if (trains_) gradients_.flush();
    finish_step();
    Program program = builder_.finish();
    program.trains = trains_;
    program.scatter = input_.policy.optimizer == Placement::sharded;
    return program;
  }

 private:
  void issue_gathers(int s) {
    for (; next_gather_ < residency_.size() && residency_[next_gather_].issue <= s; ++next_gather_) {
      const Residency& r = residency_[next_gather_];
      const Group& group = input_.units.groups[r.group];
      const RegionId kept = group.moves ? bring_params(r.group) : kNoRegion;
      RegionId region = kept;
      if (r.gather == Gather::into_region) {
        region =
            builder_.region(Purpose::gathered, group.stored_bytes(group.padded(), input_.policy.compute));
      }
      upcoming_[{r.group, r.first}] = region;
      if (r.gather != Gather::none) gather(r, region, kept);
    }
  }

  void gather(const Residency& r, RegionId region, RegionId kept) {
    const Group& group = input_.units.groups[r.group];
    const auto& chunks = group.partition.chunks();
    for (int c = 0; c < int(chunks.size());) {
      ChunkRange range{r.group, c, 0, region, false};
      int64_t elements = 0;
      do {
        elements += chunks[c++].piece * input_.world;
        ++range.count;
      } while (c < int(chunks.size()) &&
               elements + chunks[c].piece * input_.world <= input_.policy.gather_bucket);
      Instruction in{.op = Op::gather, .layer = group.unit, .micro_batch = steps_[r.first].micro_batch};
      in.lane = gather_lane();
      in.chunks = {range};
      in.source = kept;
      builder_.add(std::move(in));
    }
  }

  Lane gather_lane() const { return input_.policy.overlap ? Lane::gather : Lane::compute; }

  // What this rank keeps of a group's parameters, from the disk or the host to where it can be used.
  RegionId bring_params(int g) {
    const Group& group = input_.units.groups[g];
    const int64_t kept =
        group.partition.padded() / (input_.policy.params == Placement::sharded ? input_.world : 1);
    const size_t bytes = group.stored_bytes(kept, input_.policy.compute);
    RegionId region = kNoRegion;
    if (group.tier == Tier::disk) {
      // Extents are whole pages: the last one reaches past its end.
      region = builder_.region(Purpose::staging, round_up(bytes, kDirectAlign) + kDirectAlign, Tier::host);
      for (int c = input_.units.first_chunk[g]; c < input_.units.first_chunk[g + 1]; ++c) {
        Instruction in{.op = Op::read, .lane = Lane::read, .layer = group.unit};
        in.moved = Moved::params;
        in.chunk = c;
        in.target = {g, region};
        builder_.add(std::move(in));
      }
    }
    if (!input_.policy.offload.far_host) return region;
    Instruction in{.op = Op::fetch, .lane = gather_lane(), .layer = group.unit};
    in.moved = Moved::params;
    in.source = region;
    in.target = {g, builder_.region(Purpose::gathered, bytes)};
    region = in.target.region;
    builder_.add(std::move(in));
    return region;
  }

  // Right before its use: the gathered cells are small and come ahead, the decoded weights are large.
  RegionId decode(int group, RegionId cells) {
    const Group& g = input_.units.groups[group];
    Instruction in{.op = Op::decode, .layer = g.unit};
    in.source = cells;
    in.target = {group,
                 builder_.region(Purpose::gathered, size_t(g.padded()) * size_of(input_.policy.compute))};
    const RegionId region = in.target.region;
    builder_.add(std::move(in));
    return region;
  }

  void emit(int s) {
    const ComputeStep& step = steps_[s];
    Instruction in{.op = step.op, .layer = step.layer, .micro_batch = step.micro_batch};
    for (int group : param_groups(input_, step)) {
      const auto fresh = upcoming_.find({group, s});
      if (fresh != upcoming_.end()) {
        const bool cells = input_.units.groups[group].nf4;
        resident_[group] = cells ? decode(group, fresh->second) : fresh->second;
      }
      in.params.push_back({group, resident_[group]});
    }
    if (trains_) in.grads = gradients_.bind(s);
    if (step.op != Op::loss) in.keep = segment(step.layer).keep;
    switch (step.op) {
      case Op::forward:
        bind_forward(in);
        break;
      case Op::recompute:
        bind_recompute(in);
        break;
      case Op::loss:
        bind_loss(in);
        break;
      default:
        bind_backward(in);
        break;
    }
    builder_.add(std::move(in));
  }

  size_t activation_bytes() const {
    return size_t(input_.shape.rows() * input_.model.hidden) * size_of(input_.policy.compute);
  }
  RegionId new_activation() { return builder_.region(Purpose::activations, activation_bytes()); }
  const Segment& segment(int layer) const { return segments_[segment_of_[layer]]; }
  nn::LayerSizes sizes(int layer) const {
    return input_.model.layers[layer]->sizes(input_.shape, input_.policy.compute, segment(layer).keep);
  }
  // Output of `layer` (-1: the tokens, which are no activation).
  RegionId output(int layer, int mb) const { return layer < 0 ? kNoRegion : outputs_.at({layer, mb}); }

  void bind_forward(Instruction& in) {
    in.x = output(in.layer - 1, in.micro_batch);
    in.y = outputs_[{in.layer, in.micro_batch}] = new_activation();
    in.workspace = builder_.region(Purpose::workspace, sizes(in.layer).workspace);
    if (segment(in.layer).recompute || in.layer < input_.units.first_trained()) return;
    in.saved = saved_[{in.layer, in.micro_batch}] =
        builder_.region(Purpose::activations, sizes(in.layer).saved);
  }

  // The last layer of a segment runs again for what it saves; its output is known not to be needed.
  void bind_recompute(Instruction& in) {
    in.x = output(in.layer - 1, in.micro_batch);
    if (in.layer < segment(in.layer).last) {
      in.y = outputs_[{in.layer, in.micro_batch}] = new_activation();
    }
    in.workspace = builder_.region(Purpose::workspace, sizes(in.layer).workspace);
    in.saved = saved_[{in.layer, in.micro_batch}] =
        builder_.region(Purpose::activations, sizes(in.layer).saved);
  }

  // The gradient takes the place of the last activation and flows back through every layer in that region.
  void bind_loss(Instruction& in) {
    in.x = output(in.layer - 1, in.micro_batch);
    if (trains_) in.y = stream_[in.micro_batch] = in.x;
    in.workspace =
        builder_.region(Purpose::logits, input_.model.loss->workspace(input_.shape, input_.policy.compute));
  }

  void bind_backward(Instruction& in) {
    in.x = output(in.layer - 1, in.micro_batch);
    in.y = stream_.at(in.micro_batch);
    in.saved = saved_.at({in.layer, in.micro_batch});
    in.workspace = builder_.region(Purpose::workspace, sizes(in.layer).workspace);
  }

  void finish_step() {
    builder_.add({.op = Op::sum_losses, .layer = input_.units.loss_layer()});
    if (trains_) optimizer_.send_gradients();
    if (trains_) scan_gradients();
    Instruction norm{.op = Op::norm, .layer = input_.units.loss_layer()};
    // The step ends on the compute lane; where updates follow, other work can go on meanwhile.
    norm.lane = trains_ && input_.world > 1 && input_.policy.overlap ? Lane::reduce : Lane::compute;
    builder_.add(std::move(norm));
    builder_.add({.op = Op::finish, .layer = input_.units.loss_layer()});
    if (trains_) optimizer_.update_all();
  }

  void scan_gradients() {
    for (int g = 0; g < int(input_.units.groups.size()); ++g) {
      if (!input_.units.groups[g].trainable) continue;
      Instruction in{.op = Op::scan, .layer = input_.units.groups[g].unit};
      in.target = {g, kNoRegion};
      builder_.add(std::move(in));
    }
  }

  const CompileInput& input_;
  bool trains_;
  std::vector<Segment> segments_;
  std::vector<ComputeStep> steps_;
  std::vector<Residency> residency_;
  ProgramBuilder builder_;
  ActivationPlan activations_;
  GradientPlan gradients_;
  OptimizerPlan optimizer_;
  size_t next_gather_ = 0;
  // (group, first step) → where its gather goes, or its storage
  std::map<std::pair<int, int>, RegionId> upcoming_;
  std::vector<RegionId> resident_;  // of each group now
  std::vector<int> segment_of_;
  std::map<std::pair<int, int>, RegionId> outputs_, saved_;  // by (layer, micro-batch)
  std::map<int, RegionId> stream_;                           // gradient of the activations, by micro-batch
};

}  // namespace

Program compile(const CompileInput& input) { return Compiler(input, input.policy.trains).run(); }

Program compile_evaluation(const CompileInput& input) { return Compiler(input, false).run(); }

}  // namespace zeno::zero
