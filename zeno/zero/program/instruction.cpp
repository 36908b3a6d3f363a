#include "zeno/zero/program/instruction.h"

#include <fmt/format.h>

#include "zeno/base/overload.h"

namespace zeno::zero {
namespace {

void read_params(const std::vector<Binding>& params, Touches& touches) {
  for (const Binding& binding : params) touches.read(binding.region, {Kept::params, binding.group});
}

// Each part of a pass has its own gradients.
void add_to_grads(const GradBindings& grads, Touches& touches, const Part& part = {}) {
  for (const Binding& binding : grads.groups) {
    const Storage kept{Kept::grads, binding.group};
    grads.fresh&& part.first() ? touches.write(binding.region, kept) : touches.change(binding.region, kept);
  }
}

constexpr Storage kSums{Kept::sums, 0};
constexpr Storage outcome(Lane lane) { return {Kept::outcome, int(lane)}; }

std::string text_of(const ChunkRange& chunks) {
  return fmt::format(" g{}[{}..{})", chunks.group, chunks.first, chunks.first + chunks.count);
}

std::string text_of(const Payload& payload) {
  std::string text = fmt::format(" {}", name_of(payload.kind));
  if (payload.chunk >= 0) text += fmt::format(" c{}", payload.chunk);
  return text;
}

std::string text_of(const Reduce& op) {
  std::string text;
  for (const auto& [chunks, accumulate] : op.bucket) text += text_of(chunks) + (accumulate ? "+" : "");
  if (op.code) text += *op.code == WireCode::int8 ? " in int8" : " in int4";
  return text;
}

std::string text_of(const GatherSums& op) {
  std::string text;
  for (const ChunkRange& chunks : op.bucket) text += text_of(chunks);
  return text;
}

std::string text_of_group(int group) { return group >= 0 ? fmt::format(" g{}", group) : std::string(); }

std::string text_of(const Part& part) {
  return part.count > 1 ? fmt::format(" part {} of {}", part.index + 1, part.count) : std::string();
}

// The text of an action after its name.
std::string details_of(const Action& action) {
  return std::visit(
      Overload{
          [](const Read& op) { return text_of(op.payload); },
          [](const Fetch& op) { return text_of(op.payload); },
          [](const Store& op) { return text_of(op.payload); },
          [](const Write& op) { return text_of(op.payload); },
          [](const GradsToHost& op) { return fmt::format(" c{}", op.chunk); },
          [](const Gather& op) { return text_of(op.chunks); },
          [](const Encode& op) { return fmt::format(" g{}", op.group); },
          [](const Decode& op) { return fmt::format(" g{}", op.group); },
          [](const ZeroGrads& op) { return fmt::format(" g{}", op.grads.group); },
          [](const Forward& op) { return text_of(op.part); },
          [](const Recompute& op) { return text_of(op.forward.part); },
          [](const Backward& op) { return text_of(op.part); },
          [](const Exchange& op) {
            return fmt::format(" {} after part {}", op.backward ? "backward" : "forward", op.part + 1);
          },
          [](const AddGrads& op) { return fmt::format(" g{}", op.sum.group); },
          [](const Send& op) { return fmt::format("{} to stage {}", text_of_group(op.group), op.hop.to); },
          [](const Receive& op) {
            return fmt::format("{} from stage {}", text_of_group(op.group), op.hop.from);
          },
          [](const Reduce& op) { return text_of(op); },
          [](const GatherSums& op) { return text_of(op); },
          [](const Scan& op) { return fmt::format(" g{}", op.group); },
          [](const Update& op) { return fmt::format(" g{} c{}", op.group, op.chunk); },
          [](const auto&) { return std::string(); }},
      action);
}

}  // namespace

void Start::touch(Touches& touches) const { touches.write(kSums); }

void Read::touch(Touches& touches) const {
  touches.read(payload.home());
  touches.write(to);
}

void Fetch::touch(Touches& touches) const {
  touches.read(from, payload.home());
  touches.write(to, payload.home());
}

void Store::touch(Touches& touches) const {
  touches.read(from);
  touches.write(to, payload.home());
}

void Write::touch(Touches& touches) const {
  touches.read(from);
  touches.write(payload.home());
}

void GradsToHost::touch(Touches& touches) const {
  touches.read({Kept::grads, group});
  touches.write(to);
}

void Encode::touch(Touches& touches) const {
  touches.read(from, {Kept::params, group});
  touches.write(to);
}

void Gather::touch(Touches& touches) const {
  const Storage kept{Kept::params, chunks.group};
  if (in_place) return touches.change(chunks.region, kept);
  touches.read(from, kept);
  touches.write(chunks.region, kept);
}

void Decode::touch(Touches& touches) const {
  touches.read(from, {Kept::params, group});
  touches.write(to);
}

void ZeroGrads::touch(Touches& touches) const { touches.write(grads.region, {Kept::grads, grads.group}); }

void Forward::touch(Touches& touches) const {
  read_params(params, touches);
  touches.read(x);
  if (part.last()) touches.write(y);
  for (RegionId made : {saved, workspace}) part.first() ? touches.write(made) : touches.change(made);
}

void Exchange::touch(Touches& touches) const {
  touches.change(saved);
  touches.change(workspace);
}

// The losses of rows are stored with the sums they are added to.
void Loss::touch(Touches& touches) const {
  read_params(params, touches);
  touches.read(x);
  for (RegionId made : {dx, workspace}) touches.write(made);
  add_to_grads(grads, touches);
  touches.write(kSums);
}

void Backward::touch(Touches& touches) const {
  read_params(params, touches);
  for (RegionId made_before : {x, saved}) touches.read(made_before);
  touches.change(dy);
  part.first() ? touches.write(workspace) : touches.change(workspace);
  add_to_grads(grads, touches, part);
}

void AddGrads::touch(Touches& touches) const {
  touches.read(from);
  touches.change(sum.region, {Kept::grads, sum.group});
}

// Sums go to the shard or, if every rank keeps all of them, to the full buffer.
void Reduce::touch(Touches& touches) const {
  for (const Summand& summand : bucket) {
    if (from == kNoRegion) touches.change(summand.chunks.region);
    if (to == kNoRegion) touches.change({Kept::grads, summand.chunks.group});
  }
  for (RegionId made : {wire, arrived}) touches.write(made);
  touches.read(from);
  touches.write(to);
}

void GatherSums::touch(Touches& touches) const {
  for (const ChunkRange& chunks : bucket) touches.change(chunks.region, {Kept::grads, chunks.group});
  touches.write(wire);
}

void Send::touch(Touches& touches) const { touches.read(from, {Kept::grads, group}); }

void Receive::touch(Touches& touches) const { touches.write(to, {Kept::grads, group}); }

void ReduceRows::touch(Touches& touches) const { touches.change({Kept::grads, group}); }

void SumLosses::touch(Touches& touches) const { touches.change(kSums); }

void Scan::touch(Touches& touches) const {
  touches.read({Kept::grads, group});
  touches.change(kSums);
}

void Norm::touch(Touches& touches) const {
  touches.read(kSums);
  for (int lane = 0; lane < kLanes; ++lane) touches.write(outcome(Lane(lane)));
}

// Masters may keep only the bits that parameters lack (master_rest.h): then the stored parameters are read
// too.
void Update::touch(Touches& touches) const {
  touches.read(grads, {Kept::grads, group});
  touches.change(states, {Kept::states, chunk});
  made != kNoRegion ? touches.write(made) : touches.change({Kept::params, group});
  touches.read(outcome(touches.lane));
}

// The CPU reads the outcome that it copies.
void Finish::touch(Touches& touches) const {
  touches.read(outcome(touches.lane));
  touches.write(outcome(Lane::host));
}

std::string_view name_of(const Instruction& in) {
  return std::visit([](const auto& action) { return action.name; }, in.action);
}

Touches touches_of(const Instruction& in) {
  Touches touches(in.lane);
  std::visit([&](const auto& action) { action.touch(touches); }, in.action);
  return touches;
}

std::optional<CommUse> comm_use_of(const Instruction& in) {
  return std::visit(
      [](const auto& action) -> std::optional<CommUse> {
        if constexpr (requires { action.comm_lane; }) {
          if (!action.over.empty()) return CommUse{action.comm_lane, action.over};
        }
        return std::nullopt;
      },
      in.action);
}

std::span<const Binding> params_of(const Instruction& in) {
  using Params = std::span<const Binding>;
  return std::visit(Overload{[](const Forward& op) -> Params { return op.params; },
                             [](const Recompute& op) -> Params { return op.forward.params; },
                             [](const Loss& op) -> Params { return op.params; },
                             [](const Backward& op) -> Params { return op.params; },
                             [](const auto&) -> Params { return {}; }},
                    in.action);
}

const GradBindings* grads_of(const Instruction& in) {
  if (const Loss* loss = in.as<Loss>()) return &loss->grads;
  if (const Backward* backward = in.as<Backward>()) return &backward->grads;
  return nullptr;
}

std::string_view name_of(Moved moved) {
  switch (moved) {
    case Moved::states:
      return "states";
    case Moved::params:
      return "params";
    case Moved::activation:
      return "activation";
  }
  return "?";
}

std::string describe(const Instruction& in, const UnitTable& units) {
  std::string text = fmt::format("{} {}", name_of(in), units.unit_names[size_t(in.unit)]);
  if (in.micro_batch >= 0) text += fmt::format(" mb{}", in.micro_batch);
  text += details_of(in.action);
  if (const auto use = comm_use_of(in)) text += fmt::format(" over {}", describe(use->over));
  return text;
}

}  // namespace zeno::zero
