// Communicators for CUDA streams: the contract of tests/comm on thread ranks that share GPU 0, and on
// processes through NCCL (nccl_main.cpp, started by mpirun).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/comm/communicator_contract.h"
#include "tests/comm/contract_support.h"
#include "tests/comm/failing_world.h"
#include "tests/support/command.h"
#include "tests/support/text.h"
#include "zeno/base/error.h"
#include "zeno/comm/cuda/reduce_tree.h"
#include "zeno/comm/world.h"
#include "zeno/device/cuda/runtime.h"

namespace zeno::comm {
namespace {

constexpr Device kGpu{Device::Kind::cuda, 0};

void skip_without_gpu() {
  if (device_count(Device::Kind::cuda) == 0) GTEST_SKIP() << "no GPU";
}

using test::has;

class CudaTree : public ::testing::Test {
 protected:
  void SetUp() override { skip_without_gpu(); }

  // One case on both devices; `shift` elements keep the buffers off their alignment.
  static void compare(int inputs, DType dtype, DType out, bool accumulate, int64_t count, int64_t shift) {
    const auto world = make_self_world();
    contract::Site site(*world, kGpu);
    std::vector<contract::Bytes> buffers;
    std::vector<const std::byte*> on_device, on_host;
    for (int r = 0; r < inputs; ++r) {
      buffers.emplace_back(site, contract::Memory::plain, size_t(count) * size_of(dtype),
                           size_t(shift) * size_of(dtype));
      for (int64_t i = 0; i < count; ++i)
        contract::put(buffers.back().host(), dtype, i, contract::value(r, i, 7));
      buffers.back().upload();
    }
    for (contract::Bytes& buffer : buffers) {
      on_device.push_back(buffer.data());
      on_host.push_back(buffer.host());
    }
    contract::Bytes result(site, contract::Memory::plain, size_t(count) * size_of(out),
                           size_t(shift) * size_of(out));
    for (int64_t i = 0; i < count; ++i) contract::put(result.host(), out, i, float(i % 17) - 8);
    result.upload();
    std::vector<std::byte> want(result.host(), result.host() + size_t(count) * size_of(out));
    tree_sum({want.data(), out, dtype, accumulate, false}, on_host, count);
    const Stream stream = site.stream("sum");
    cuda_tree_sum(cuda::native(stream), {result.data(), out, dtype, accumulate, false}, on_device, count);
    stream.synchronize();
    result.download();
    EXPECT_EQ(std::memcmp(result.host(), want.data(), want.size()), 0)
        << inputs << " inputs, " << name_of(dtype) << " into " << name_of(out) << ", accumulate "
        << accumulate << ", count " << count << ", shift " << shift;
  }
};

TEST_F(CudaTree, HasTheBitsOfTheCpuForAllTypes) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const DType out : {DType::f32, DType::bf16, DType::f16}) {
      for (const bool accumulate : {false, true}) {
        for (const int64_t shift : {0, 1}) {
          compare(4, dtype, out, accumulate, 1003, shift);
          compare(19, dtype, out, accumulate, 1003, shift);
        }
      }
    }
  }
}

TEST_F(CudaTree, HasTheBitsOfTheCpuForAllWorldSizes) {
  for (const int inputs : {1, 2, 3, 5, 6, 7, 8, 9, 15, 16, 17, 23, 24, 31, 33, 64, 71, 100, 256, 1000}) {
    compare(inputs, DType::bf16, DType::f32, false, 515, 0);
  }
  compare(3, DType::f32, DType::f32, true, 3'000'001, 0);  // more than the grid covers in one go
}

WorldOptions patient() { return {.deadline = std::chrono::seconds(60)}; }

class CudaThreads : public ::testing::TestWithParam<std::tuple<int, contract::Case>> {
 protected:
  void SetUp() override { skip_without_gpu(); }
};

TEST_P(CudaThreads, KeepTheContract) {
  const auto& [ranks, test] = GetParam();
  run_thread_ranks(ranks, patient(), [&](World& world) {
    contract::Site site(world, kGpu);
    test.run(site);
  });
}

INSTANTIATE_TEST_SUITE_P(Contract, CudaThreads,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 8),
                                            ::testing::ValuesIn(contract::cases().begin(),
                                                                contract::cases().end())),
                         [](const auto& test) {
                           return fmt::format("{}_{}", std::get<1>(test.param).name, std::get<0>(test.param));
                         });

// What each rank saw, and what came out of run_thread_ranks in the last place.
std::vector<std::string> run_failing(int ranks, std::string_view way, std::chrono::milliseconds deadline) {
  std::vector<std::string> messages(size_t(ranks) + 1);
  try {
    run_thread_ranks(ranks, {.deadline = deadline}, [&](World& world) {
      try {
        contract::Site site(world, kGpu);
        contract::fail_in(site, way);
      } catch (const std::exception& error) {
        messages[size_t(world.rank())] = error.what();
        throw;
      }
    });
  } catch (const std::exception& error) {
    messages.back() = error.what();
  }
  return messages;
}

class CudaThreadFailure : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { skip_without_gpu(); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, CudaThreadFailure, ::testing::Values(2, 4));

TEST_P(CudaThreadFailure, ThrowIsToldToTheOthersAndRethrown) {
  const int n = GetParam();
  for (const char* way : {"throw", "reading"}) {
    const std::vector<std::string> messages = run_failing(n, way, std::chrono::seconds(30));
    EXPECT_EQ(messages.back(), "row 7 of train.jsonl is broken");
    for (int r = 0; r + 1 < n; ++r) {
      EXPECT_TRUE(has(messages[size_t(r)],
                      fmt::format("[comm] rank {} failed: row 7 of train.jsonl is broken; this rank was in "
                                  "reduce_scatter of unit blocks.2 (operation 3 on 'reduce')",
                                  n - 1)))
          << messages[size_t(r)];
    }
  }
}

TEST_P(CudaThreadFailure, StallAndMismatchNameTheRank) {
  const int n = GetParam();
  for (const std::string& message : run_failing(n, "stall", std::chrono::milliseconds(300))) {
    EXPECT_TRUE(has(message, fmt::format("nothing moved for 300 ms: rank {} has not arrived (last completed "
                                         "there: operation 2, reduce_scatter of unit blocks.1)",
                                         n - 1)))
        << message;
  }
  for (const char* way : {"mismatch-op", "mismatch-count", "mismatch-unit"}) {
    for (const std::string& message : run_failing(n, way, std::chrono::seconds(30))) {
      EXPECT_TRUE(has(message, "the ranks disagree on 'reduce'")) << message;
      EXPECT_TRUE(has(message, fmt::format("rank {} issued ", n - 1))) << message;
    }
  }
  for (const std::string& message : run_failing(n, "mismatch-exchange", std::chrono::seconds(30))) {
    EXPECT_TRUE(has(message, fmt::format("rank {} sends 8 fp32 elements to rank 0", n - 1))) << message;
  }
}

TEST(CudaCommunicator, RefusesAStreamOfAnotherDevice) {
  if (device_count(Device::Kind::cuda) == 0) GTEST_SKIP() << "no GPU";
  const auto world = make_self_world();
  const auto comm = world->communicator("gather", kGpu);
  const Stream cpu({.name = "cpu"});
  EXPECT_THROW(comm->barrier(cpu, "unit"), Error);
}

class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    skip_without_gpu();
    if (!IsSkipped() && !mpi_available()) GTEST_SKIP() << "built without MPI";
  }

  // Several ranks on one GPU: NCCL allows it when they look like different hosts.
  static test::CommandResult mpirun(int ranks, const std::string& arguments, const std::string& flags = "") {
    return test::run_command(fmt::format(
        "NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 timeout 200 mpirun --allow-run-as-root --oversubscribe "
        "--mca btl self,vader,tcp --mca btl_vader_single_copy_mechanism none -x NCCL_SOCKET_IFNAME "
        "-x NCCL_IB_DISABLE {} -n {} sh -c 'NCCL_HOSTID=rank$OMPI_COMM_WORLD_RANK exec "
        "{}/tests/test_cuda_nccl {}'",
        flags, ranks, ZENO_BINARY_DIR, arguments));
  }
  static std::string line_of(const std::string& text, const std::string& start) {
    const size_t begin = text.find(start);
    return begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
  }
  // All ranks but the last say `text` about it, and where they were.
  static void expect_told(const test::CommandResult& result, int ranks, const std::string& text) {
    for (int r = 0; r + 1 < ranks; ++r) {
      const std::string line = line_of(result.output, fmt::format("rank {} exits with", r));
      EXPECT_TRUE(has(line, "exits with 6: ") && has(line, text)) << result.output;
      EXPECT_TRUE(has(line, "this rank was in reduce_scatter of unit blocks.2 (operation 3 on 'reduce')"))
          << line;
    }
  }
};

constexpr const char* kLetOthersSpeak = "--enable-recovery";

TEST_F(Nccl, KeepsTheContract) {
  for (const char* contract : {"contract", "native"}) {
    for (const int ranks : {2, 4}) {
      const test::CommandResult result = mpirun(ranks, contract);
      EXPECT_EQ(result.exit_code, 0) << result.output;
      for (int r = 0; r < ranks; ++r) {
        EXPECT_TRUE(has(result.output, fmt::format("rank {} is done", r))) << result.output;
      }
    }
  }
}

TEST_F(Nccl, HostsFindOutBeforeTheDeviceDoes) {
  expect_told(mpirun(2, "kill", kLetOthersSpeak), 2, "rank 1 failed: its process (");
  expect_told(mpirun(2, "throw", kLetOthersSpeak), 2, "rank 1 failed: row 7 of train.jsonl is broken");
  expect_told(mpirun(2, "mismatch-unit", kLetOthersSpeak), 2, "rank 1 issued reduce_scatter of unit head");
}

TEST_F(Nccl, WatchdogEndsWhatHangsOnTheDevice) {
  expect_told(mpirun(2, "device-stall 4000", kLetOthersSpeak), 2,
              "nothing moved for 4000 ms: all ranks have issued the operation");
  for (const char* way : {"device-kill", "native-device-kill"})
    expect_told(mpirun(2, way, kLetOthersSpeak), 2, "rank 1 failed: its process (");
}

}  // namespace
}  // namespace zeno::comm
