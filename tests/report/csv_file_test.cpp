#include "zeno/report/csv_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <vector>

#include "tests/support/temp_dir.h"

namespace zeno::report {
namespace {

// Cells of all rows of a CSV file as RFC 4180 has it.
std::vector<std::vector<std::string>> parse(const std::string& text) {
  std::vector<std::vector<std::string>> rows{{""}};
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    std::string& cell = rows.back().back();
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      cell += text[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && c == ',') {
      rows.back().push_back("");
    } else if (!quoted && c == '\n') {
      rows.push_back({""});
    } else {
      cell += c;
    }
  }
  EXPECT_EQ(rows.back(), std::vector<std::string>{""}) << "the last line has no end";
  rows.pop_back();
  return rows;
}

std::map<std::string, std::string> row_of(const std::string& line) {
  const auto rows = parse(csv_header() + "\n" + line + "\n");
  EXPECT_EQ(rows[0].size(), rows[1].size()) << line;
  std::map<std::string, std::string> cells;
  for (size_t i = 0; i < rows[0].size() && i < rows[1].size(); ++i) cells[rows[0][i]] = rows[1][i];
  EXPECT_EQ(cells.size(), rows[0].size()) << "two columns have one name";
  return cells;
}

TEST(Csv, AStepReadsBackExactly) {
  StepRecord record{
      .step = 3, .loss = 2.0 / 3, .grad_norm = 1e-7 / 3, .lr = 3e-4, .epoch = 0.1, .tokens = 12};
  record.exposed_comm_ms = 0.25;
  record.bytes_gathered = (uint64_t(1) << 53) + 1;  // not a double
  record.peak_disk = ~uint64_t(0);
  auto row = row_of(to_csv(record));
  EXPECT_EQ(row.at("step"), "3");
  EXPECT_EQ(std::strtod(row.at("loss").c_str(), nullptr), record.loss);
  EXPECT_EQ(std::strtod(row.at("grad_norm").c_str(), nullptr), record.grad_norm);
  EXPECT_EQ(std::strtod(row.at("lr").c_str(), nullptr), record.lr);
  EXPECT_EQ(row.at("epoch"), "0.1");
  EXPECT_EQ(row.at("tokens"), "12");
  EXPECT_EQ(row.at("exposed_comm_ms"), "0.25");
  EXPECT_EQ(row.at("bytes_gathered"), "9007199254740993");
  EXPECT_EQ(row.at("peak_disk_bytes"), "18446744073709551615");
  EXPECT_EQ(row.at("skipped"), "0");
  for (const char* missing : {"first_bad_tensor", "first_bad_rank", "eval_loss", "eval_ms"}) {
    EXPECT_EQ(row.at(missing), "") << missing;
  }
}

TEST(Csv, ASkippedStepKeepsItsRow) {
  StepRecord record{.step = 9, .loss = std::nan(""), .grad_norm = INFINITY, .lr = -INFINITY, .skipped = true};
  record.first_bad = {.name = "blocks.0,\"odd\"\nname", .rank = 2};
  auto row = row_of(to_csv(record));
  EXPECT_EQ(row.at("loss"), "NaN");
  EXPECT_EQ(row.at("grad_norm"), "Inf");
  EXPECT_EQ(row.at("lr"), "-Inf");
  EXPECT_EQ(row.at("skipped"), "1");
  EXPECT_EQ(row.at("first_bad_tensor"), "blocks.0,\"odd\"\nname");
  EXPECT_EQ(row.at("first_bad_rank"), "2");
  EXPECT_EQ(row.at("exposed_comm_ms"), "");
}

TEST(Csv, AnEvaluationIsARowOfItsOwn) {
  auto row = row_of(to_csv(EvalRecord{.step = 20,
                                      .epoch = 0.5,
                                      .loss = 1.5,
                                      .perplexity = 4.25,
                                      .token_accuracy = 0.75,
                                      .tokens = 99,
                                      .ms = 12}));
  EXPECT_EQ(row.at("step"), "20");
  EXPECT_EQ(row.at("epoch"), "0.5");
  EXPECT_EQ(row.at("loss"), "");
  EXPECT_EQ(row.at("eval_loss"), "1.5");
  EXPECT_EQ(row.at("eval_perplexity"), "4.25");
  EXPECT_EQ(row.at("eval_token_accuracy"), "0.75");
  EXPECT_EQ(row.at("eval_tokens"), "99");
  EXPECT_EQ(row.at("eval_ms"), "12");
}

TEST(CsvFile, HasAHeaderAndLinesThatCanBeReadAtOnce) {
  const test::TempDir folder;
  const Path path = folder.write("metrics.csv", "left over from another run\n");
  CsvFile file(path);
  for (int64_t step = 1; step <= 3; ++step) {
    file.append(StepRecord{.step = step});
    const auto rows = parse(read_file(path));
    ASSERT_EQ(rows.size(), size_t(step) + 1);
    EXPECT_EQ(rows[0][0], "step");
    EXPECT_EQ(rows.back()[0], std::to_string(step));
  }
  file.append(EvalRecord{.step = 3});
  EXPECT_EQ(parse(read_file(path)).size(), 5u);
}

}  // namespace
}  // namespace zeno::report
