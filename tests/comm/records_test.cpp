#include <gtest/gtest.h>

#include <stdlib.h>

#include <array>

#include "zeno/comm/cost.h"
#include "zeno/comm/flight/flight_recorder.h"
#include "zeno/comm/flight/op_record.h"
#include "zeno/comm/world.h"

namespace zeno::comm {
namespace {

TEST(Cost, SlicesOfAnAllReduceCoverTheVectorOnce) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const int64_t count : {0, 1, 31, 32, 33, 100, 1000, 4096}) {
      int64_t at = 0;
      for (int r = 0; r < ranks; ++r) {
        const Slice slice = all_reduce_slice(ranks, r, count);
        EXPECT_EQ(slice.begin, at);
        EXPECT_GE(slice.size(), 0);
        at = slice.end;
      }
      EXPECT_EQ(at, count);
    }
  }
}

TEST(Cost, BytesFollowTheTextbook) {
  EXPECT_EQ(all_gather_cost(4, 100, DType::bf16), (Cost{2, 600}));
  EXPECT_EQ(reduce_scatter_cost(4, 100, DType::f32), (Cost{2, 1200}));
  int64_t total = 0;
  for (int r = 0; r < 4; ++r) total += all_reduce_cost(4, r, 1000, DType::f32).bytes;
  EXPECT_EQ(total, 2 * 3 * 4000);  // 2 S (n - 1) / n each
  EXPECT_EQ(all_reduce_cost(1, 0, 1000, DType::f32), Cost{});
  EXPECT_EQ(broadcast_cost(4, true, 10, DType::f32).bytes, 120);
  EXPECT_EQ(broadcast_cost(4, false, 10, DType::f32).bytes, 40);
}

TEST(OpRecord, FindsTheOddOneOut) {
  constexpr std::array kRanks{0, 1, 2, 3};
  const Part part{nullptr, nullptr, 64};
  std::vector<OpRecord> records(4, make_record(OpKind::all_gather, {&part, 1}, DType::bf16, -1, "blocks.3"));
  for (OpRecord& record : records) record.sequence = 17;
  EXPECT_FALSE(find_mismatch(records, kRanks));
  records[2] = make_record(OpKind::reduce_scatter, {&part, 1}, DType::f32, -1, "head");
  records[2].sequence = 17;
  EXPECT_EQ(find_mismatch(records, kRanks),
            "ranks 0, 1 and 3 issued all_gather of unit blocks.3 (1 part, 64 bf16 elements) as operation 17, "
            "rank 2 "
            "issued reduce_scatter of unit head (1 part, 64 fp32 elements) as operation 17");
}

TEST(OpRecord, LongNamesDifferBeyondWhatIsKept) {
  const std::string name(100, 'x');
  EXPECT_FALSE(same_operation(make_record(OpKind::barrier, {}, DType::u8, -1, fmt::format("{}a", name)),
                              make_record(OpKind::barrier, {}, DType::u8, -1, fmt::format("{}b", name))));
}

TEST(FlightRecorder, KeepsTheLastOnes) {
  FlightRecorder recorder(4);
  std::vector<uint64_t> handles;
  for (int i = 0; i < 10; ++i) {
    OpRecord record = make_record(OpKind::barrier, {}, DType::u8, -1, fmt::format("u{}", i));
    record.sequence = uint64_t(i + 1);
    handles.push_back(recorder.issue("gather", record, 0));
  }
  recorder.start(handles[8]);
  recorder.done(handles[8]);
  recorder.start(handles[9]);
  recorder.done(handles[0]);  // long gone: ignored
  const std::string dump = recorder.dump();
  EXPECT_EQ(dump.find("unit u5"), std::string::npos) << dump;
  EXPECT_NE(dump.find("unit u6"), std::string::npos) << dump;
  EXPECT_NE(dump.find(" done "), std::string::npos) << dump;
  EXPECT_NE(dump.find(" started "), std::string::npos) << dump;
  EXPECT_NE(dump.find(" issued "), std::string::npos) << dump;
}

class Launch : public ::testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                             "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID",
                             "SLURM_STEP_ID", "PMI_RANK", "PMI_SIZE", "PMI_FD", "PMIX_NAMESPACE"}) {
      unsetenv(name);
    }
  }
  static void set(const char* name, const char* value) { setenv(name, value, 1); }
};

TEST_F(Launch, ByHand) {
  EXPECT_EQ(launch_info().launcher, "");
  EXPECT_EQ(launch_info().size, 1);
}

TEST_F(Launch, OpenMpi) {
  set("OMPI_COMM_WORLD_RANK", "5");
  set("OMPI_COMM_WORLD_SIZE", "8");
  set("OMPI_COMM_WORLD_LOCAL_RANK", "1");
  set("OMPI_COMM_WORLD_LOCAL_SIZE", "4");
  const LaunchInfo info = launch_info();
  EXPECT_EQ(info.launcher, "mpirun");
  EXPECT_EQ(info.rank, 5);
  EXPECT_EQ(info.size, 8);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.local_size, 4);
}

TEST_F(Launch, TorchrunInsideSlurm) {
  set("SLURM_STEP_ID", "0");
  set("SLURM_PROCID", "1");
  set("SLURM_NTASKS", "2");
  EXPECT_EQ(launch_info().launcher, "slurm");
  EXPECT_EQ(launch_info().rank, 1);
  set("RANK", "9");
  set("WORLD_SIZE", "16");
  set("LOCAL_RANK", "1");
  EXPECT_EQ(launch_info().launcher, "torchrun");
  EXPECT_EQ(launch_info().rank, 9);
}

TEST_F(Launch, WhatMpiCanAskUnderSlurm) {
  set("SLURM_STEP_ID", "0");
  set("SLURM_PROCID", "1");
  set("SLURM_NTASKS", "2");
  EXPECT_EQ(launch_info().process_manager, ProcessManager::none);  // srun --mpi=none
  set("PMI_FD", "11");
  EXPECT_EQ(launch_info().process_manager, ProcessManager::pmi);  // srun --mpi=pmi2
  set("PMIX_NAMESPACE", "slurm.pmix.5.0");
  EXPECT_EQ(launch_info().process_manager, ProcessManager::pmix);
}

TEST_F(Launch, BatchScriptOfSlurmIsAlone) {
  set("SLURM_PROCID", "0");
  set("SLURM_NTASKS", "8");
  EXPECT_EQ(launch_info().size, 1);
}

TEST_F(Launch, NonsenseIsIgnored) {
  set("RANK", "one");
  set("WORLD_SIZE", "2");
  EXPECT_EQ(launch_info().launcher, "");
}

}  // namespace
}  // namespace zeno::comm
