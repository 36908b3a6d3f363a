// One rank of the NCCL tests, started by mpirun (comm_test.cpp), all on GPU 0.
//   test_cuda_nccl contract            runs the contract suite
//   test_cuda_nccl native              runs that of NCCL's own sums
//   test_cuda_nccl native-WAY          as WAY, with these sums
//   test_cuda_nccl WAY [DEADLINE]      fails in one of the ways of failing_world.h, or on the device:
//                                      device-stall, device-kill; exits as the command line would, and says
//                                      so
#include <fmt/core.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "tests/comm/communicator_contract.h"
#include "tests/comm/contract_support.h"
#include "tests/comm/failing_world.h"
#include "tests/comm/native_contract.h"
#include "tests/comm/rank_process.h"
#include "zeno/device/cuda/runtime.h"

namespace {

using namespace zeno;
using namespace zeno::comm;

void sleep_long(void*) { std::this_thread::sleep_for(std::chrono::seconds(7)); }
void die_soon(void*) {
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  raise(SIGKILL);
}

// All ranks have issued operation 3, but the device of the last one does not come to it: what the hosts see
// is in order, and only the watchdog can end it.
void fail_on_device(contract::Site& site, std::string_view way) {
  const auto comm = site.communicator("reduce");
  const int64_t count = 1000;
  contract::Bytes send = contract::filled(site, contract::Memory::shared, site.size() * count, DType::f32, 1);
  contract::Bytes recv(site, contract::Memory::shared, size_t(count) * 4);
  Stream stream = site.stream("reduce");
  const Part part{send.data(), recv.data(), count};
  for (int op = 0; op < 4; ++op) {
    if (op == 2 && site.rank() == site.size() - 1) {
      const cudaHostFn_t block = way == "device-kill" ? die_soon : sleep_long;
      cuda::check(cudaLaunchHostFunc(cuda::native(stream), block, nullptr), "block the stream");
    }
    comm->reduce_scatter(stream, {&part, 1}, DType::f32, DType::f32, false, fmt::format("blocks.{}", op));
    contract::settle(stream, *comm);
  }
}

void run(World& world, std::string_view way, const char*& at) {
  const bool native = way.starts_with("native");
  contract::Site site(world, {Device::Kind::cuda, 0}, native ? Reduction::native : Reduction::tree);
  at = way.data();
  if (way.starts_with("native-")) way.remove_prefix(std::string_view("native-").size());
  if (way.starts_with("device-")) return fail_on_device(site, way);
  if (way != "contract" && way != "native") return contract::fail_in(site, way);
  for (const contract::Case& test : native ? contract::native_cases() : contract::cases()) {
    at = test.name;
    test.run(site);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::string way = argv[1];
  WorldOptions options;
  options.deadline = std::chrono::milliseconds(argc > 2 ? std::atoi(argv[2]) : 60'000);
  options.device_staging_bytes = 1 << 20;  // small, so that the tests go through many rounds
  const char* at = "the start";
  return run_rank_process(
      options, [&](World& world) { run(world, way, at); }, at);
}
