#include "zeno/report/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace zeno::report {
namespace {

using nlohmann::json;
using test::expect_error;

StepRecord example_step() {
  return {.step = 3,
          .loss = 2.0 / 3,
          .grad_norm = 1e-7 / 3,
          .lr = 3e-4,
          .epoch = 1.0 / 3,
          .tokens = 3 * 4096,
          .num_tokens = 3 * 5000,
          .tokens_per_s = 12345.678901234567,
          .step_ms = 331.77,
          .data_wait_ms = 0.1,
          .loss_scale = 65536,
          .skipped = false,
          .first_bad = {},
          .exposed_comm_ms = 0.25,
          .bytes_gathered = (uint64_t(1) << 53) + 1,  // not a double
          .bytes_reduced = 7,
          .peak_device = 1,
          .peak_host = 2,
          .peak_disk = ~uint64_t(0)};
}

std::vector<json> lines_of(const Path& path) {
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

TEST(Metrics, ARecordReadsBackExactly) {
  const StepRecord record = example_step();
  const json line = json::parse(to_json(record));
  EXPECT_EQ(line.at("step"), record.step);
  EXPECT_EQ(line.at("loss").get<double>(), record.loss);
  EXPECT_EQ(line.at("grad_norm").get<double>(), record.grad_norm);
  EXPECT_EQ(line.at("lr").get<double>(), record.lr);
  EXPECT_EQ(line.at("tokens"), record.tokens);
  EXPECT_EQ(line.at("tokens_per_s").get<double>(), record.tokens_per_s);
  EXPECT_EQ(line.at("step_ms").get<double>(), record.step_ms);
  EXPECT_EQ(line.at("loss_scale").get<double>(), record.loss_scale);
  EXPECT_EQ(line.at("skipped"), false);
  EXPECT_EQ(line.at("exposed_comm_ms").get<double>(), record.exposed_comm_ms);
  EXPECT_EQ(line.at("bytes_gathered").get<uint64_t>(), record.bytes_gathered);
  EXPECT_EQ(line.at("bytes_reduced").get<uint64_t>(), record.bytes_reduced);
  EXPECT_EQ(line.at("peak_bytes"), (json{{"device", 1}, {"host", 2}, {"disk", ~uint64_t(0)}}));
  EXPECT_EQ(line.at("epoch").get<double>(), record.epoch);
  EXPECT_EQ(line.at("num_tokens"), record.num_tokens);
  EXPECT_EQ(line.at("data_wait_ms").get<double>(), record.data_wait_ms);
  EXPECT_EQ(line.size(), 16u);
}

TEST(Metrics, EventsReadBackExactly) {
  const EvalRecord eval{.step = 7,
                        .epoch = 0.7,
                        .loss = 2.0 / 3,
                        .perplexity = INFINITY,
                        .token_accuracy = 1.0 / 7,
                        .tokens = 1234,
                        .ms = 0.3};
  EXPECT_EQ(json::parse(to_json(eval)), (json{{"event", "eval"},
                                              {"step", 7},
                                              {"epoch", 0.7},
                                              {"eval_loss", 2.0 / 3},
                                              {"perplexity", nullptr},
                                              {"token_accuracy", 1.0 / 7},
                                              {"eval_tokens", 1234},
                                              {"eval_ms", 0.3}}));
  BadStepRecord bad{.step = 3, .kind = "spike", .loss = 9, .mean = 2, .first_bad = {}, .batch = "a \"b\":7"};
  EXPECT_EQ(json::parse(to_json(bad)), (json{{"event", "bad_step"},
                                             {"step", 3},
                                             {"kind", "spike"},
                                             {"loss", 9},
                                             {"mean", 2},
                                             {"batch", "a \"b\":7"}}));
  bad.first_bad = BadTensor{"embed.weight", 1};
  EXPECT_EQ(json::parse(to_json(bad)).at("first_bad_tensor"), "embed.weight");
  EXPECT_EQ(to_json(DoneRecord{.weights_hash = 0xabc}),
            R"({"event":"done","weights_hash":"0000000000000abc"})");
  EXPECT_EQ(json::parse(to_json(DoneRecord{.weights_hash = 1, .interrupted = true})).at("interrupted"), true);
  EXPECT_EQ(json::parse(to_json(DoneRecord{.weights_hash = 1, .stopped_early = true})).at("stopped_early"),
            true);
}

TEST(Metrics, ASkippedStepNamesTheTensor) {
  StepRecord record = example_step();
  record.loss = std::nan("");
  record.grad_norm = INFINITY;
  record.skipped = true;
  record.first_bad = {.name = "blocks.0.\"odd\".weight", .rank = 2};
  const json line = json::parse(to_json(record));
  EXPECT_TRUE(line.at("loss").is_null());
  EXPECT_TRUE(line.at("grad_norm").is_null());
  EXPECT_EQ(line.at("skipped"), true);
  EXPECT_EQ(line.at("first_bad_tensor"), "blocks.0.\"odd\".weight");
  EXPECT_EQ(line.at("first_bad_rank"), 2);
}

TEST(MetricsFile, HasOneLinePerStepAndALastOne) {
  const test::TempDir folder;
  const Path path = folder.write("metrics.jsonl", "left over from another run\n");
  MetricsFile file(path);
  StepRecord record = example_step();
  for (record.step = 1; record.step <= 5; ++record.step) {
    file.append(record);
    ASSERT_EQ(lines_of(path).size(), size_t(record.step));  // readable at once
  }
  file.finish({.weights_hash = 0xabc});
  const std::vector<json> lines = lines_of(path);
  ASSERT_EQ(lines.size(), 6u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(lines[size_t(i)].at("step"), i + 1);
  EXPECT_EQ(lines[5], (json{{"event", "done"}, {"weights_hash", "0000000000000abc"}}));
  expect_error(ErrorKind::internal, {"metrics.jsonl"}, [&] { file.append(record); });
  expect_error(ErrorKind::internal, {"metrics.jsonl"}, [&] { file.finish({}); });
}

TEST(MetricsFile, ReportsAFullDisk) {
  struct FullDisk : FileSystem {
    size_t room = 1 << 20;
    ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) override {
      if (room == 0) {
        errno = ENOSPC;
        return -1;
      }
      const ssize_t n = FileSystem::pwrite(fd, data, std::min(bytes, room), offset);
      room -= size_t(n);
      return n;
    }
  } disk;
  const FileSystemOverride override(disk);
  const test::TempDir folder;
  MetricsFile file(folder.path() / "metrics.jsonl");
  file.append(example_step());
  disk.room = 100;  // less than a line
  expect_error(ErrorKind::io, {"metrics.jsonl", "No space left"}, [&] { file.append(example_step()); });
  // Once there is room again, both lines take the place of the torn one.
  disk.room = 1 << 20;
  file.append(example_step());
  EXPECT_EQ(lines_of(folder.path() / "metrics.jsonl").size(), 3u);
}

TEST(MetricsFile, ReportsAPathThatCannotBeWritten) {
  expect_error(ErrorKind::io, {"no/such/folder"}, [] { MetricsFile("/no/such/folder/metrics.jsonl"); });
}

}  // namespace
}  // namespace zeno::report
