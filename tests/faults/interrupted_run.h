// What a run has left that was asked to stop and ended with exit code 0.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/cli_runs.h"
#include "tests/support/job.h"

namespace zeno::test {

// `said` is its output, `out` its folder: both tell of the same last step, of which there are a checkpoint
// and the model.
inline void expect_interrupted_run_saved(const std::string& said, const std::filesystem::path& out) {
  constexpr std::string_view kWords = "interrupted after step ";
  const size_t at = said.find(kWords);
  ASSERT_NE(at, std::string::npos) << said;
  const std::string step = std::to_string(std::stol(said.substr(at + kWords.size())));
  const std::string folder = "step-" + std::string(8 - step.size(), '0') + step;
  for (const auto& made : {out / "checkpoints" / folder, out / "model.safetensors"}) {
    const CommandResult result = run_command(kZeno + " inspect " + made.string());
    EXPECT_EQ(result.exit_code, 0) << result.output << said;
  }
  const std::string metrics = text_of(out / "metrics.jsonl");
  const std::string end = metrics.substr(metrics.rfind("{\"step\""));
  EXPECT_TRUE(end.starts_with("{\"step\":" + step + ",")) << end << said;
  EXPECT_NE(end.find("\"interrupted\":true"), std::string::npos) << end << said;
}

}  // namespace zeno::test
