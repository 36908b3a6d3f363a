// Runs of the real program on a tiny model, in a folder of their own, and what came out of them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/command.h"
#include "tests/support/plain_flags.h"
#include "tests/support/temp_dir.h"

namespace zeno::test {

class CliRuns : public testing::Test {
 protected:
  explicit CliRuns(int hidden = 32) : hidden_(hidden) {}
  void SetUp() override {
    const CommandResult made =
        run_command(kZeno + " init --arch llama --hidden " + std::to_string(hidden_) +
                    " --layers 2 --heads 4 --kv-heads 2 --vocab 300 --out " + path("model"));
    ASSERT_EQ(made.exit_code, 0) << made.output;
  }

  std::string path(const std::string& name) const { return (dir_.path() / name).string(); }
  std::string train_on_cpu(const std::string& out, const std::string& more) const {
    return kZeno + " train --model " + path("model") + " --data generated --device cpu --out " + path(out) +
           plain_flags(more) + more;
  }
  CommandResult expect_ok(const std::string& command) const {
    CommandResult result = run_command(command);
    EXPECT_EQ(result.exit_code, 0) << command << "\n" << result.output;
    return result;
  }
  // Step losses and the hash of all weights; a run may be under way.
  std::vector<std::string> outcome(const std::string& out) const {
    std::vector<std::string> lines;
    std::ifstream file(path(out) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, false);
      if (!parsed.is_object()) continue;  // just being written
      if (parsed.contains("loss")) lines.push_back(parsed.at("step").dump() + " " + parsed.at("loss").dump());
      if (parsed.contains("weights_hash")) lines.push_back(parsed.at("weights_hash"));
    }
    return lines;
  }
  void copy(const std::string& from, const std::string& to) const {
    std::filesystem::remove_all(path(to));
    std::filesystem::copy(path(from), path(to), std::filesystem::copy_options::recursive);
  }

  TempDir dir_;

 private:
  int hidden_;
};

}  // namespace zeno::test
