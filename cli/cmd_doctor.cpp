// What this machine offers to a run, and what is missing. Looks and reports; changes nothing.
#include <CLI/CLI.hpp>

#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "cli/commands.h"
#include "zeno/base/file.h"
#include "zeno/comm/world.h"
#include "zeno/device/device.h"
#include "zeno/device/ledger.h"

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
  row("gpu", ZENO_CUDA ? "none that can be used" : "none: this build has no CUDA");
  if (driver && !ZENO_CUDA)
    advice("there is an NVIDIA driver: install the CUDA 13 toolkit, cuDNN 9 and NCCL, and build again");
  if (driver && ZENO_CUDA)
    advice("there is an NVIDIA driver: is the device visible here (container: --gpus all)?");
}

void show_launch() {
  const comm::LaunchInfo launch = comm::launch_info();
  if (launch.launcher.empty()) {
    row("launcher", "none: --ranks N runs ranks as threads of one process");
  } else {
    row("launcher", fmt::format("{}: this is rank {} of {}, {} of {} here", launch.launcher, launch.rank,
                                launch.size, launch.local_rank, launch.local_size));
  }
  row("mpi", comm::mpi_available()
                 ? "yes: mpirun -n N zeno train … runs ranks as processes, on several hosts too"
                 : "no: this build has no MPI");
  if (!comm::mpi_available()) advice("apt install libopenmpi-dev openmpi-bin, and build again");
}

void show_folder(std::string_view what, const Path& folder, uint64_t least, const std::string& when_small) {
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
  if (files.rlim_cur < kFiles) advice("ulimit -n 4096: a model of many files and many ranks needs more");
}

void run(const std::string& folder) {
  show_host();
  show_gpus();
  show_launch();
  show_folder("disk", folder, uint64_t(10) << 30,
              "a checkpoint takes 12 bytes for every trained parameter; name another folder to look at");
  show_folder("shared", "/dev/shm", uint64_t(1) << 30,
              "ranks as processes meet here: give a container more with --shm-size");
  show_limits();
}

}  // namespace

void add_doctor(CLI::App& app) {
  CLI::App* command = app.add_subcommand("doctor", "what this machine offers, and what is missing");
  auto folder = std::make_shared<std::string>(".");
  command->add_option("folder", *folder, "where results would go; default: here");
  command->callback([folder] { run(*folder); });
}

}  // namespace zeno::cli
