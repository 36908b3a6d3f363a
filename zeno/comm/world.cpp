#include "zeno/comm/world.h"

#include <unistd.h>

#include <csignal>
#include <numeric>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/comm/failure.h"

namespace zeno::comm {
namespace {

std::string shorten(std::string_view text) {
  constexpr size_t kLongest = 200;
  return text.size() <= kLongest ? std::string(text) : fmt::format("{}...", text.substr(0, kLongest));
}

// A JointError is thrown by all ranks. A rank that left at once would end the exchange from which the others
// learn of it.
void await_joint_error(World& world) noexcept {
  try {
    world.exchange("", "an error of all ranks");
  } catch (...) {  // a rank has left, so all have arrived
  }
}

}  // namespace

std::unique_ptr<Communicator> World::communicator(std::string_view name, Device device,
                                                  std::span<const int> ranks) {
  return communicator(name, device, ranks, Reduction::tree);
}

std::unique_ptr<Communicator> World::communicator(std::string_view name, Device device) {
  std::vector<int> everyone(static_cast<size_t>(size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  return communicator(name, device, everyone);
}

void check_same(World& world, std::string_view what, std::string_view value) {
  const std::vector<std::string> values = world.exchange(value, what);
  for (size_t r = 1; r < values.size(); ++r) {
    require(values[r] == values[0], ErrorKind::peer,
            "[comm] the ranks disagree on {}: rank 0 has '{}', rank {} has '{}'", what, shorten(values[0]), r,
            shorten(values[r]));
  }
}

std::string first_problem(World& world, std::string_view mine, std::string_view what) {
  for (std::string& theirs : world.exchange(mine, what)) {
    if (!theirs.empty()) return std::move(theirs);
  }
  return {};
}

void run_mpi_rank(const WorldOptions& options, const std::function<void(World&)>& body) {
  // When a process of the job ends badly, the launcher sends SIGTERM to the others at once; they would end
  // before they could print which rank failed and where. So SIGTERM gives them a moment for that.
  std::signal(SIGTERM, [](int) { alarm(3); });
  const std::unique_ptr<World> world = make_mpi_world(options);
  set_log_rank(world->rank());
  try {
    body(*world);
    world->finish();
  } catch (...) {
    const Ending ending = ending_of(std::current_exception());
    if (ending.joint) await_joint_error(*world);
    world->fail(ending.text);
    if (ending.deserves_record()) world->record_failure(ending.text);
    throw;
  }
}

}  // namespace zeno::comm
