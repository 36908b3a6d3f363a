// The only file that reads the environment, for the variables of launchers.
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <optional>

#include "zeno/comm/world.h"

namespace zeno::comm {
namespace {

std::optional<int> number(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  if (error != std::errc() || *end != 0) return std::nullopt;
  return value;
}

std::optional<int> first_of(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const std::optional<int> value = number(name)) return value;
  }
  return std::nullopt;
}

ProcessManager process_manager() {
  if (std::getenv("PMIX_NAMESPACE") != nullptr) return ProcessManager::pmix;
  for (const char* name : {"PMI_FD", "PMI_PORT", "PMI_RANK", "PMI_CONTROL_PORT"}) {
    if (std::getenv(name) != nullptr) return ProcessManager::pmi;
  }
  return ProcessManager::none;
}

// Both rank and size are required; the local ones are optional.
bool read(LaunchInfo& info, const char* launcher, std::optional<int> rank, std::optional<int> size,
          std::optional<int> local_rank, std::optional<int> local_size) {
  if (!rank || !size) return false;
  info = {*rank, *size, local_rank.value_or(0), local_size.value_or(1), launcher, process_manager()};
  return true;
}

}  // namespace

LaunchInfo launch_info() {
  LaunchInfo info;
  if (read(info, "mpirun", number("OMPI_COMM_WORLD_RANK"), number("OMPI_COMM_WORLD_SIZE"),
           number("OMPI_COMM_WORLD_LOCAL_RANK"), number("OMPI_COMM_WORLD_LOCAL_SIZE"))) {
    return info;
  }
  // Before Slurm: torchrun is often started by srun, once per machine.
  if (read(info, "torchrun", number("RANK"), number("WORLD_SIZE"), number("LOCAL_RANK"),
           number("LOCAL_WORLD_SIZE"))) {
    return info;
  }
  // A batch script also has the variables of the job, but no step: a program that it starts without srun is a
  // job of one rank.
  if (number("SLURM_STEP_ID") &&
      read(info, "slurm", number("SLURM_PROCID"), first_of({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}),
           number("SLURM_LOCALID"), number("SLURM_NTASKS_PER_NODE"))) {
    return info;
  }
  read(info, "mpirun", first_of({"PMI_RANK", "PMIX_RANK"}), first_of({"PMI_SIZE", "PMIX_SIZE"}),
       first_of({"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}), first_of({"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}));
  return info;
}

}  // namespace zeno::comm
