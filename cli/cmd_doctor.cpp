// What this machine offers to a run, and what is missing. Looks and reports; with --measure it measures the
// rates that a plan of time needs and stores them.
#include <CLI/CLI.hpp>

#include <fmt/chrono.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "cli/commands.h"
#include "zeno/base/cache_folder.h"
#include "zeno/base/disk_operation.h"
#include "zeno/base/file.h"
#include "zeno/base/host.h"
#include "zeno/base/log.h"
#include "zeno/comm/world.h"
#include "zeno/device/device.h"
#include "zeno/device/ledger.h"
#include "zeno/plan/machine/measure.h"

namespace zeno::cli {
namespace {

void row(std::string_view what, const std::string& value) { fmt::print("{:<10} {}\n", what, value); }
void advice(const std::string& text) { fmt::print("{:<10} → {}\n", "", text); }

// As people know their CPU.
std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

void show_host() {
  row("cpu", fmt::format("{}, {} cores for this process", cpu_name(), available_cores()));
  row("memory", fmt::format("{} available of {}", format_bytes(available_host_memory()),
                            format_bytes(total_memory({}))));
}

void show_gpus() {
  const int count = device_count(Device::Kind::cuda);
  for (int i = 0; i < count; ++i) {
    const Device gpu{Device::Kind::cuda, i};
    row("gpu", fmt::format("{}: {}, {} free of {}", i, describe(gpu), format_bytes(available_memory(gpu)),
                           format_bytes(total_memory(gpu))));
  }
  if (count > 0) return;
  const bool driver = std::filesystem::exists("/proc/driver/nvidia/version");
  row("gpu", ZENO_CUDA ? "none is usable" : "none: this build has no CUDA");
  if (driver && !ZENO_CUDA)
    advice("an NVIDIA driver is installed: install the CUDA 13 toolkit, cuDNN 9 and NCCL, and build again");
  if (driver && ZENO_CUDA)
    advice("an NVIDIA driver is installed: check that the device is visible here (container: --gpus all)");
}

void show_launch() {
  const comm::LaunchInfo launch = comm::launch_info();
  if (launch.launcher.empty()) {
    row("launcher", "none: --ranks N runs ranks as threads of one process");
  } else {
    row("launcher", fmt::format("{}: this is rank {} of {}, local rank {} of {}", launch.launcher,
                                launch.rank, launch.size, launch.local_rank, launch.local_size));
  }
  row("mpi", comm::mpi_available()
                 ? "yes: mpirun -n N zeno train … runs ranks as processes, also on several hosts"
                 : "no: this build has no MPI");
  if (!comm::mpi_available()) advice("apt install libopenmpi-dev openmpi-bin, and build again");
}

void show_folder(std::string_view what, const Path& folder, uint64_t least, const std::string& when_small) {
  const DiskOperation waiting("inspecting", folder);
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error) return row(what, fmt::format("{}: {}", folder.string(), error.message()));
  row(what, fmt::format("{}: {} free of {}", folder.string(), format_bytes(space.available),
                        format_bytes(space.capacity)));
  if (space.available < least) advice(when_small);
}

void show_limits() {
  constexpr rlim_t kFiles = 1024;
  rlimit files{}, locked{};
  getrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_MEMLOCK, &locked);
  const auto text = [](rlim_t limit, bool bytes) {
    if (limit == RLIM_INFINITY) return std::string("no limit");
    return bytes ? format_bytes(size_t(limit)) : fmt::format("{}", limit);
  };
  row("limits", fmt::format("{} open files, {} of locked memory", text(files.rlim_cur, false),
                            text(locked.rlim_cur, true)));
  if (files.rlim_cur < kFiles) advice("ulimit -n 4096: a model with many files and many ranks needs more");
}

std::string time_of(const Path& file) {
  using namespace std::chrono;
  const DiskOperation waiting("inspecting", file);
  const auto time = file_clock::to_sys(std::filesystem::last_write_time(file));
  return fmt::format("{:%Y-%m-%d %H:%M}",
                     fmt::localtime(system_clock::to_time_t(time_point_cast<system_clock::duration>(time))));
}

// The device that a run takes when none is named.
Device::Kind usual_kind() {
  return device_count(Device::Kind::cuda) > 0 ? Device::Kind::cuda : Device::Kind::cpu;
}

void show_profile() {
  const Path file = plan::machine_file(cache_folder(), usual_kind());
  if (plan::measured_machine(cache_folder(), usual_kind())) {
    row("profile", fmt::format("measured {}: {}; measure again with zeno doctor --measure", time_of(file),
                               file.string()));
  } else {
    row("profile", "none: zeno doctor --measure takes 20 s and tells zeno plan how fast this machine is");
  }
}

void show(const Path& folder) {
  show_host();
  show_gpus();
  show_launch();
  show_folder("disk", folder, uint64_t(10) << 30,
              "a checkpoint takes 12 bytes per trained parameter; name another folder to check");
  show_folder("shared", "/dev/shm", uint64_t(1) << 30,
              "processes of one host communicate here: give a container more with --shm-size");
  show_limits();
  show_profile();
}

// Programs that ran in the last minute, on average.
double load_of_machine() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

struct DoctorFlags {
  std::string folder = ".", out, device;
  bool measure = false;
  double between = 0;  // GB/s
  int rails = 0;
};

void measure(const DoctorFlags& flags) {
  plan::MeasureOptions options;
  options.kind = flags.device.empty()     ? usual_kind()
                 : flags.device == "cuda" ? Device::Kind::cuda
                                          : Device::Kind::cpu;
  options.folder = flags.folder;
  options.matmul_plans = cache_folder() / "matmul_plans.txt";
  options.between_rate = flags.between * 1e9;
  options.rails = flags.rails;
  options.sizes = plan::usual_sizes(options.kind);
  options.report = [](const plan::Measured& line) {
    fmt::print("{:<18} {:>22}   {}\n", line.what, line.rate, line.how);
    std::fflush(stdout);
  };
  const Path file = flags.out.empty() ? plan::machine_file(cache_folder(), options.kind) : Path(flags.out);
  if (file.has_parent_path()) make_folders(file.parent_path());
  const double load = load_of_machine();
  plan::save_machine(plan::measure_machine(options), file);
  fmt::print("stored in {}\n", file.string());
  if (load > 0.5 * available_cores())
    log_warning(
        "[doctor] {:.1f} other programs ran on {} cores and slowed the measurement; measure again without "
        "them",
        load, available_cores());
}

}  // namespace

void add_doctor(CLI::App& app) {
  CLI::App* command = app.add_subcommand("doctor", "show what this machine offers and what is missing");
  auto flags = std::make_shared<DoctorFlags>();
  command->add_option("folder", flags->folder, "folder for results, to check its disk");
  CLI::Option* rates = command->add_flag(
      "--measure", flags->measure, "measure and store the rates that zeno plan needs; takes about 20 s");
  command
      ->add_option("--out", flags->out,
                   "file to store them in; defaults to ~/.cache/zeno/machine-DEVICE.json")
      ->type_name("FILE")
      ->needs(rates);
  command->add_option("--device", flags->device, "device to measure; defaults to cuda if there is a GPU")
      ->type_name("NAME")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->needs(rates);
  command
      ->add_option("--between-rate", flags->between,
                   "GB/s between nodes over each rail, stored with the profile")
      ->default_str("")
      ->needs(rates);
  command
      ->add_option("--rails", flags->rails,
                   "network links of a node, stored with the profile; defaults to one per GPU, one for a CPU")
      ->default_str("")
      ->needs(rates);
  command->callback([flags] { flags->measure ? measure(*flags) : show(flags->folder); });
}

}  // namespace zeno::cli
