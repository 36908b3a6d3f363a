#include "zeno/report/trouble_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "zeno/base/quantity.h"
#include "zeno/device/ledger.h"
#include "zeno/report/progress.h"

namespace zeno::report {
namespace {

using Texts = std::vector<std::string>;
constexpr size_t kRemedies = 3;  // in a line

std::string whole_percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

bool sharded_params(const TroubleSetting& s) { return !s.policy.params.empty(); }
bool horizontal(const TroubleSetting& s) {
  return s.policy.order == zero::Order::horizontal && s.policy.micro_batches > 1;
}

// The same work in fewer, larger pieces; or more work for the same bytes.
std::string larger_micro_batch(const TroubleSetting& s) {
  const config::BatchConfig& b = s.config.batch;
  return b.grad_accum % 2 == 0
             ? fmt::format("--micro-batch {} --grad-accum {} (the same batch in half as many passes)",
                           2 * b.micro_batch, b.grad_accum / 2)
             : fmt::format("--micro-batch {} (more work per pass)", 2 * b.micro_batch);
}
std::string larger_batch(const TroubleSetting& s) {
  return fmt::format("--grad-accum {} (the same bytes for twice the work)", 2 * s.config.batch.grad_accum);
}

void smaller_moments(const TroubleSetting& s, Texts& out) {
  const bool large = s.policy.moments.value_or(s.policy.states) == DType::f32;
  if (large && s.policy.moments_second) out.push_back("--moment-dtype 8bit (half the bytes of the states)");
}

Texts communication_remedies(const TroubleSetting& s) {
  Texts out;
  const bool per_pass = horizontal(s) && (sharded_params(s) || !s.policy.grads.empty());
  if (!s.policy.overlap)
    out.push_back("\"overlap_comm\": true (now false: computation waits for all communication)");
  if (per_pass) {
    out.push_back(fmt::format("--order vertical (once per step instead of for each of {} micro-batches)",
                              s.policy.micro_batches));
  }
  const int64_t ahead = 2 * s.largest_unit;
  if (sharded_params(s) && s.policy.overlap && s.policy.prefetch < ahead) {
    out.push_back(fmt::format("raise stage3_prefetch_bucket_size to {} (now {}: less than two layers ahead)",
                              format_count(ahead), format_count(s.policy.prefetch)));
  }
  const bool by_pass = per_pass || (sharded_params(s) && s.policy.micro_batches == 1);
  out.push_back(by_pass ? larger_micro_batch(s) : larger_batch(s));
  if (sharded_params(s) && s.policy.offload.params == Tier::device)
    out.push_back("--stage 2 if the parameters fit (a third less traffic)");
  const bool mpi_sums = s.policy.reduction == comm::Reduction::native && !s.policy.offload.far_host;
  const bool may_round = !mpi_sums && !s.policy.coded_gradients;
  if (s.policy.wire == DType::f32 && s.policy.compute != DType::f32 && may_round) {
    out.push_back(
        fmt::format("\"communication_data_type\": \"{}\" (half the bytes of the gradients; changes the bits)",
                    name_of(s.policy.compute)));
  }
  return out;
}

Texts link_remedies(const TroubleSetting& s) {
  Texts out;
  const zero::Offload& offload = s.policy.offload;
  if (offload.optimizer != Tier::device) {
    if (s.config.zero.offload_optimizer.device != config::OffloadDevice::automatic)
      out.push_back("--offload-optimizer auto (what fits stays on the device)");
    smaller_moments(s, out);
  }
  if (offload.params != Tier::device) {
    out.push_back("--offload-param none if the parameters fit");
    if (horizontal(s))
      out.push_back("--order vertical (gathers parameters once per pass, not per micro-batch)");
  }
  if (offload.activations) out.push_back("leave out --offload-activations if they fit");
  out.push_back(offload.params != Tier::device ? larger_micro_batch(s) : larger_batch(s));
  return out;
}

Texts disk_remedies(const TroubleSetting& s) {
  Texts out;
  const bool states = s.policy.offload.optimizer == Tier::disk;
  const std::string& paths = s.config.zero.offload_optimizer.nvme_path.empty()
                                 ? s.config.zero.offload_param.nvme_path
                                 : s.config.zero.offload_optimizer.nvme_path;
  out.push_back(fmt::format("{} cpu (each rank has {} on disk)",
                            states ? "--offload-optimizer" : "--offload-param", format_bytes(s.disk_bytes)));
  out.push_back(fmt::format("--nvme-path with folders on more disks (now {})",
                            1 + std::count(paths.begin(), paths.end(), ',')));
  if (states) smaller_moments(s, out);
  out.push_back(larger_batch(s));
  return out;
}

std::string data_remedy(const TroubleSetting& s) {
  return fmt::format(
      "put --cache (now {}; tokens are read from there) and token files on a fast local disk, and leave "
      "memory free for the page cache",
      s.config.run.cache);
}

Texts slow_rank_remedies(const Trouble& t, const TroubleSetting& s) {
  switch (t.part) {
    case Trouble::Part::data:
      return {data_remedy(s) + ", on that rank's host"};
    case Trouble::Part::disk:
      return {"check the disk under --nvme-path on that rank's host"};
    case Trouble::Part::link:
      return {"check the link of that rank's GPU (zeno doctor)"};
    case Trouble::Part::compute:
      break;
  }
  return {
      "check that host for other processes, fewer cores, lower clocks or heat (zeno doctor), or run without "
      "it"};
}

Texts loss_scale_remedies(const Trouble& t, const TroubleSetting& s) {
  Texts out;
  const config::LossScaleConfig& scale = s.config.precision.loss_scale;
  if (!scale.dynamic()) {
    out.push_back(fmt::format("fp16.loss_scale 0, which finds the scale automatically (now fixed at {})",
                              scale.loss_scale));
  } else if (t.scale > Troubles::kTinyScale && t.scale < std::ldexp(1, int(scale.initial_scale_power))) {
    out.push_back(fmt::format("fp16.initial_scale_power {} (now {}), where the search for the scale is now",
                              std::ilogb(t.scale), scale.initial_scale_power));
  }
  out.push_back("--dtype bf16, which needs no scale");
  out.push_back(fmt::format("a lower --lr (now {:g})", s.config.optimizer.lr));
  if (s.config.optimizer.gradient_clipping == 0) out.push_back("--clip 1");
  out.push_back(fmt::format("a longer --warmup (now {} steps)", s.config.schedule.warmup_steps));
  return out;
}

// So rarely that a twentieth of the time is left to it.
Texts checkpoint_remedies(const Trouble& t, const TroubleSetting& s) {
  const config::RunConfig& run = s.config.run;
  const int64_t times = int64_t(std::ceil(t.share / 0.05));
  if (run.save_every > 0)
    return {fmt::format("--save-every {} (now {})", times * run.save_every, run.save_every),
            "an --out folder on a faster disk"};
  return {fmt::format("--peer-snapshot {} (now {})", times * run.peer_snapshot, run.peer_snapshot)};
}

std::string what(const Trouble& t, const TroubleSetting& s) {
  const std::string share = whole_percent(t.share);
  switch (t.kind) {
    case TroubleKind::communication:
      return fmt::format("communication is exposed for {} of the step", share);
    case TroubleKind::link:
      return fmt::format("copies between host and GPU hold up {} of the step", share);
    case TroubleKind::disk:
      return fmt::format("the disk holds up {} of the step", share);
    case TroubleKind::data:
      return fmt::format("{} of the step waits for samples", share);
    case TroubleKind::slow_rank:
      break;
    case TroubleKind::loss_scale:
      return fmt::format("{} of {} steps were skipped because of overflow, the loss scale is {:g}", t.skipped,
                         t.steps, t.scale);
    case TroubleKind::checkpoint:
      return fmt::format("saving takes {} of the time", share);
  }
  constexpr std::string_view parts[] = {"computing", "copies between host and GPU", "its disk",
                                        "waiting for samples"};
  const std::string host = s.hosts.empty() ? "" : fmt::format(" (host {})", s.hosts[size_t(t.rank)]);
  return fmt::format(
      "rank {}{} takes {:.1f} times as long as the others, by {}: they wait {} of the step for it", t.rank,
      host, t.ratio, parts[size_t(t.part)], share);
}

double share_of_compute(const TroubleSums& sums) { return std::min(1.0, sums.timed_share(sums.compute)); }

// Nothing is wrong: what the time goes to all the same.
std::string what_bounds(const TroubleSums& sums, const TroubleSetting& s, MemoryUse memory) {
  constexpr double kMost = 0.7;
  if (share_of_compute(sums) < kMost) {
    return fmt::format(
        "No single part holds up the step: computation takes {}, communication {}, copies {}, the disk {}, "
        "samples {}.",
        whole_percent(share_of_compute(sums)), whole_percent(sums.timed_share(sums.communication)),
        whole_percent(sums.timed_share(sums.link)), whole_percent(sums.timed_share(sums.disk)),
        whole_percent(sums.share(sums.data)));
  }
  std::string text =
      fmt::format("Computation bounds the step: {} of it.", whole_percent(share_of_compute(sums)));
  if (s.device == Device::Kind::cuda && s.policy.compute == DType::f32)
    text += " --dtype bf16 would compute faster.";
  if (memory.peak >= memory.limit / 2) return text;
  const config::RecomputeMode mode = s.config.recompute.mode;
  if (mode == config::RecomputeMode::full || mode == config::RecomputeMode::selective)
    return text + " --recompute auto would recompute only as much as memory requires.";
  return text + fmt::format(" {} of {} are in use: a larger micro-batch, {}, may compute faster.",
                            format_bytes(memory.peak), format_bytes(memory.limit), larger_micro_batch(s));
}

}  // namespace

Texts remedies(const Trouble& t, const TroubleSetting& s) {
  switch (t.kind) {
    case TroubleKind::communication:
      return communication_remedies(s);
    case TroubleKind::link:
      return link_remedies(s);
    case TroubleKind::disk:
      return disk_remedies(s);
    case TroubleKind::data:
      return {data_remedy(s)};
    case TroubleKind::slow_rank:
      return slow_rank_remedies(t, s);
    case TroubleKind::loss_scale:
      return loss_scale_remedies(t, s);
    case TroubleKind::checkpoint:
      return checkpoint_remedies(t, s);
  }
  return {};
}

std::string describe(const Trouble& t, const TroubleSetting& s, const std::string& place) {
  Texts help = remedies(t, s);
  if (help.size() > kRemedies) help.resize(kRemedies);
  std::string text = what(t, s);
  if (t.kind != TroubleKind::loss_scale) text += fmt::format(" over {} steps", t.steps);
  if (!place.empty()) text += fmt::format(" (most: {})", place);
  return fmt::format("{}; what helps: {}", text, fmt::join(help, ", or "));
}

std::string advice(const Troubles& troubles, const Texts& lines, const TroubleSetting& s, MemoryUse memory) {
  const TroubleSums& sums = troubles.total();
  if (!lines.empty()) {
    std::string text = fmt::format("What would help: {}.", fmt::join(lines, ". Also: "));
    if (sums.timed_steps > 0)
      text += fmt::format(" Computation takes {} of the step.", whole_percent(share_of_compute(sums)));
    return text;
  }
  if (!troubles.sure()) {
    return fmt::format(
        "Too short to say what bounds the step: that takes {} timed steps and {:.0f} second after the first "
        "{}.",
        Troubles::kWindow, Troubles::kWindowMs / 1000, Troubles::kWarmUp);
  }
  return what_bounds(sums, s, memory);
}

}  // namespace zeno::report
