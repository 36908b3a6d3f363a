#include "zeno/plan/machine/measure.h"

#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/base/host.h"
#include "zeno/base/log.h"
#include "zeno/base/newer_version.h"
#include "zeno/kernels/cuda/matmul/matmul_plans.h"
#include "zeno/plan/machine/measure_bench.h"
#include "zeno/plan/machine/measure_compute.h"
#include "zeno/plan/machine/measure_disk.h"
#include "zeno/plan/machine/measure_host.h"
#include "zeno/plan/machine/measure_links.h"

namespace zeno::plan {
namespace {

constexpr double kGiga = 1e9;
constexpr double kBetweenLatency = 20e-6;  // of a good network; the user gives the rate only

std::string name_of_kind(Device::Kind kind) { return kind == Device::Kind::cuda ? "cuda" : "cpu"; }

std::string flops_text(double rate) {
  return rate >= 1e12 ? fmt::format("{:.1f} TFLOP/s", rate / 1e12)
                      : fmt::format("{:.1f} GFLOP/s", rate / kGiga);
}
std::string bytes_text(double rate) { return fmt::format("{:.2f} GB/s", rate / kGiga); }
std::string micros_text(double seconds) { return fmt::format("{:.1f} us", seconds * 1e6); }

void require_measurable(const MeasureOptions& options) {
  require(device_count(options.kind) > 0, ErrorKind::usage,
          "[measure] device {}: got no usable one, expected at least one; see zeno doctor",
          name_of_kind(options.kind));
  require(folder_exists(options.folder), ErrorKind::usage,
          "[measure] folder {}: got no such folder, expected one on the disk to measure",
          options.folder.string());
  require(options.between_rate >= 0, ErrorKind::usage,
          "[measure] --between-rate: got {} GB/s, expected at least 0", options.between_rate / kGiga);
  require(options.rails >= 0, ErrorKind::usage, "[measure] --rails: got {}, expected at least 0",
          options.rails);
  require_room(options.folder, options.sizes.disk_bytes);
}

// Fills in one part of the machine after the other.
class Measurement {
 public:
  explicit Measurement(const MeasureOptions& options) : options_(options), sizes_(options.sizes) {
    machine_.name = fmt::format("this machine, {}", describe(device_));
    machine_.kind = options.kind;
    machine_.between = {options.between_rate, options.between_rate > 0 ? kBetweenLatency : 0};
  }

  Machine run() {
    memory();  // first: the others take its time off
    packing();
    matmuls();
    attention();
    launch();
    host_link();
    ranks();
    network();
    disk();
    sizes();
    return machine_;
  }

 private:
  bool gpu() const { return options_.kind == Device::Kind::cuda; }
  void report(std::string_view what, std::string rate, std::string how) const {
    if (options_.report) options_.report({what, std::move(rate), std::move(how)});
  }

  // On a CPU the memory's rate is what AdamW sees. A core waits for what it fetches, also to overwrite it,
  // and not for what goes back: so reading alone, clearing and copying have the same rate.
  void memory() {
    zero::Policy policy;
    policy.compute = DType::bf16;
    HostUpdates updates(device_, available_cores(), policy, sizes_.elements);
    const double seconds = sustained_seconds(
        0.5 * sizes_.seconds, [&] { updates.run(); }, [] {});
    machine_.host_updates = double(updates.count()) / seconds;
    machine_.memory_rate =
        gpu() ? measure_copy(device_, sizes_, 0.15 * sizes_.seconds) : updates.bytes() / seconds;
    report("AdamW on the CPU", fmt::format("{:.2f} billion/s", machine_.host_updates / kGiga),
           fmt::format("fp32 states and gradients, 16-bit copy, {} cores", available_cores()));
    report("memory", bytes_text(machine_.memory_rate),
           gpu() ? "a copy within the device, counting bytes read and written"
                 : "as AdamW streams it, each byte counted once");
  }

  void host_link() {
    LinkCopies copies(device_, sizes_.copy_bytes);
    const double seconds = sustained_seconds(
        0.25 * sizes_.seconds, [&] { copies.queue(); }, [&] { copies.wait(); });
    machine_.host_link = double(copies.bytes()) / seconds;
    report("host link", bytes_text(machine_.host_link),
           gpu() ? "per direction, both directions at once, pinned memory" : "per copy, two copies at once");
  }

  double report_compute(std::string_view what, const ComputeRate& rate, const std::string& how) const {
    report(what, flops_text(rate.flops), fmt::format("{}; {} with its memory", how, flops_text(rate.whole)));
    return rate.flops;
  }

  void packing() {
    if (gpu()) return;  // takes operands as they lie
    machine_.packing = measure_packing(sizes_, machine_.memory_rate, 0.5 * sizes_.seconds);
    report("packing",
           machine_.packing > 0 ? fmt::format("{:.2f} billion/s", machine_.packing / kGiga) : "free",
           "operands of linears, 16 rows, forward and backward, besides bytes and FLOPs");
  }

  // As in training: with the plans that a run would make, kept for the next.
  void matmuls() {
    std::optional<cuda::MatmulTuning> tuning;
    if (gpu()) tuning.emplace();
    const bool kept = gpu() && !options_.matmul_plans.empty();
    if (kept) cuda::load_matmul_plans(options_.matmul_plans);
    const auto measure = [&](std::string_view what, MatmulType type, double part) {
      const double seconds = part * sizes_.seconds;
      return report_compute(
          what, measure_matmul(device_, type, sizes_, machine_.memory_rate, machine_.packing, seconds),
          fmt::format("linears, {} x {} x {}, forward and backward, {:.1f} s", sizes_.tokens, sizes_.width,
                      sizes_.inner, seconds));
    };
    machine_.matmul_16bit = measure("matmul, 16 bits", MatmulType::bits16, 1);
    machine_.matmul_fp32 = measure("matmul, fp32", MatmulType::fp32, gpu() ? 0.4 : 1);
    machine_.matmul_fp8 = gpu() ? measure("matmul, fp8", MatmulType::fp8, 0.6) : machine_.matmul_16bit;
    if (kept) cuda::save_matmul_plans(options_.matmul_plans);
  }

  void attention() {
    machine_.attention = report_compute(
        "attention", measure_attention(device_, sizes_, machine_.memory_rate, 0.5 * sizes_.seconds),
        fmt::format("{} x {} tokens, causal, 16 bits, forward and backward", sizes_.tokens / sizes_.seq,
                    sizes_.seq));
  }

  void launch() {
    machine_.launch = measure_launch(device_, 0.1 * sizes_.seconds);
    report("launch", micros_text(machine_.launch), "an empty kernel, in a sequence of such kernels");
  }

  void ranks() {
    constexpr int kMost = 8;
    const int count = gpu() ? device_count(options_.kind) : std::clamp(available_cores(), 2, kMost);
    if (gpu()) machine_.node_ranks = count;
    if (count < 2) return report("between ranks", "unknown", "one GPU: there is no other rank");
    machine_.inside = measure_inside(options_.kind, count,
                                     gpu() ? sizes_.copy_bytes : 2 * sizes_.copy_bytes / size_t(count));
    if (!gpu()) machine_.inside.rate *= count;
    report("between ranks", bytes_text(machine_.inside.rate) + ", " + micros_text(machine_.inside.latency),
           fmt::format("{} ranks at once, {}: reduce-scatter and all-gather", count, gpu() ? "each" : "all"));
  }

  void network() {
    machine_.rails = options_.rails > 0 ? options_.rails : machine_.node_ranks;
    const bool known = options_.between_rate > 0;
    report("between nodes", known ? bytes_text(options_.between_rate) : "unknown",
           fmt::format("each of {} rail{} of a node, {}", machine_.rails, machine_.rails == 1 ? "" : "s",
                       known ? "as given" : "to be given with --between-rate"));
  }

  void disk() {
    const DiskRates rates = measure_disk(options_.folder, sizes_.disk_bytes);
    machine_.disk_read = rates.read;
    machine_.disk_write = rates.write;
    const std::string how =
        fmt::format("{}, past the page cache, with checksums, {}", options_.folder.string(), rates.engine);
    report("disk, read", bytes_text(rates.read), how);
    report("disk, write", bytes_text(rates.write), how);
  }

  void sizes() {
    machine_.memory = double(total_memory(device_));
    machine_.host_memory = double(total_memory({}));
    machine_.disk = double(free_space(options_.folder));
    const auto text = [](double bytes) { return format_bytes(size_t(bytes)); };
    if (gpu()) report("memory, device", text(machine_.memory), "total");
    report("memory, host", text(machine_.host_memory), "total");
    report("disk", text(machine_.disk), "free memory");
  }

  const MeasureOptions& options_;
  const MeasureSizes& sizes_;
  const Device device_{options_.kind, 0};
  Machine machine_;
};

}  // namespace

MeasureSizes usual_sizes(Device::Kind kind) {
  if (kind == Device::Kind::cpu) return {};
  return {.tokens = 8192,
          .width = 4096,
          .inner = 14336,
          .seq = 4096,
          .head_dim = 128,
          .copy_bytes = size_t(256) << 20};
}

Machine measure_machine(const MeasureOptions& options) {
  require_measurable(options);
  return Measurement(options).run();
}

Path machine_file(const Path& cache, Device::Kind kind) {
  return cache / fmt::format("machine-{}.json", name_of_kind(kind));
}

std::optional<Machine> measured_machine(const Path& cache, Device::Kind kind) {
  const Path file = machine_file(cache, kind);
  if (!file_exists(file)) return std::nullopt;
  try {
    return load_machine(file);
  } catch (const NewerVersion&) {
    throw;
  } catch (const Error& error) {
    log_warning("{}", error.what());
    return std::nullopt;
  }
}

}  // namespace zeno::plan
