// zeno data as a user runs it, and the first sample that zeno train shows in a terminal.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <nlohmann/json.hpp>

#include "tests/support/cli_runs.h"
#include "tests/support/terminal.h"

namespace zeno::test {
namespace {

using nlohmann::json;

class DataCommand : public CliRuns {
 protected:
  void SetUp() override {
    CliRuns::SetUp();
    dir_.write(
        "chat.jsonl",
        R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}], "id": 7}
{"messages": [{"role": "user", "content": "And?"}, {"role": "assistant", "content": "Grüße\nvon hier"}], "id": 8}
)");
  }
  std::string data(const std::string& more) const {
    return kZeno + " data --model " + path("model") + " --data " + path("chat.jsonl") + " --cache " +
           path("cache") + " --chat-template chatml " + more;
  }
  // What goes to stdout is JSON and nothing else.
  json read_json(const std::string& more) const {
    return json::parse(expect_ok("{ " + data(more) + " --json 2>/dev/null; }").output);
  }
};

TEST_F(DataCommand, PrintsPiecesAsJson) {
  const json out = read_json("");
  ASSERT_EQ(out.at("samples").size(), 2u);
  EXPECT_EQ(out.at("samples").at(1).at("pieces"), json::parse(R"([
      {"text": "<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n", "trained": false},
      {"text": "Grüße\nvon hier<|im_end|>", "trained": true},
      {"text": "\n", "trained": false}])"));
  EXPECT_EQ(out.at("samples").at(1).at("origin"), path("chat.jsonl") + ":2");
  const json& counts = out.at("counts");
  EXPECT_EQ(counts.at("samples"), 2);
  EXPECT_EQ(counts.at("unused_fields"), json::parse(R"({"id": 2})"));
  EXPECT_EQ(counts.at("files").size(), 1u);
  EXPECT_EQ(read_json("--show 1").at("samples").size(), 1u);
  EXPECT_EQ(read_json("--show 0").at("samples").size(), 0u);
}

TEST_F(DataCommand, TakesTheFlagsOfTraining) {
  // Those of a run that change nothing here are accepted.
  const json out = read_json("--loss-on all --seq-len 8 --too-long keep_end --lr 1e-4 --out " + path("out"));
  EXPECT_EQ(out.at("counts").at("truncated"), 2);
  EXPECT_EQ(out.at("counts").at("trained_tokens"), 16);
  EXPECT_EQ(out.at("samples").at(0).at("pieces").size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

TEST_F(DataCommand, MarksTrainedTextInATerminalAndElsewhere) {
  const std::string plain = expect_ok(data("")).output;
  EXPECT_NE(plain.find("<|im_start|>assistant⏎\n⟦Hello!<|im_end|>⟧⏎"), std::string::npos) << plain;
  EXPECT_NE(plain.find("'id' in 2 of 2 records"), std::string::npos) << plain;
  EXPECT_EQ(plain.find('\x1b'), std::string::npos) << plain;
  const std::string colours = expect_ok(data("--color always")).output;
  EXPECT_NE(colours.find("\x1b[32mHello!<|im_end|>\x1b[0m"), std::string::npos) << colours;
}

TEST_F(DataCommand, WritesAPage) {
  expect_ok(data("--html " + path("data.html")));
  std::ifstream file(path("data.html"));
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_NE(page.find("<mark>Hello!&lt;|im_end|&gt;</mark>"), std::string::npos);
}

// The cache that is looked at is the one that training opens: it is not built again.
TEST_F(DataCommand, LeavesTheCacheForTraining) {
  expect_ok(data(""));
  const auto caches = [&] {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path("cache") + "/datasets"))
      names.push_back(
          entry.path().string() +
          std::to_string(
              std::filesystem::last_write_time(entry.path() / "manifest.json").time_since_epoch().count()));
    return names;
  };
  const std::vector<std::string> before = caches();
  ASSERT_EQ(before.size(), 1u);
  // The one test whose run measures the machine, which takes about 20 s.
  expect_ok(kZeno + " train --model " + path("model") + " --data " + path("chat.jsonl") + " --cache " +
            path("cache") + " --chat-template chatml --device cpu --seq-len 64 --steps 1 --out " +
            path("out"));
  EXPECT_EQ(caches(), before);
}

TEST_F(DataCommand, KeepsItsCacheWhereTrainingDoesAndNotInTheWorkingFolder) {
  std::filesystem::create_directory(path("work"));
  const std::string command =
      kZeno + " data --model " + path("model") + " --data " + path("chat.jsonl") + " --chat-template chatml";
  const std::string shown = expect_ok("cd " + path("work") + " && " + command).output;
  EXPECT_TRUE(std::filesystem::is_empty(path("work"))) << shown;
  EXPECT_NE(shown.find("/.cache/zeno/datasets/"), std::string::npos) << shown;
}

TEST_F(DataCommand, RefusesWhatItCannotShow) {
  const auto refused = [&](const std::string& command, int exit_code, const std::string& part) {
    const CommandResult result = run_command(kZeno + " data " + command);
    EXPECT_EQ(result.exit_code, exit_code) << result.output;
    EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
  };
  refused("--data " + path("chat.jsonl"), 2, "no model");
  refused("--model " + path("model"), 2, "no data");
  refused("--model " + path("model") + " --data generated", 2, "made-up tokens");
  refused("--model " + path("model") + " --data " + path("none.jsonl"), 3, "none.jsonl");
  refused("--model " + path("model") + " --data x --show -1", 2, "from 0 on");
  refused("--model " + path("model") + " --data x --color blue", 2, "--color");
}

// Runs a command with stderr in a terminal and returns what came there.
std::string in_terminal(const std::string& command) {
  const Terminal terminal(100);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(terminal.fd(), STDERR_FILENO);
    ::execl("/bin/sh", "sh", "-c", (command + " >/dev/null").c_str(), nullptr);
    ::_exit(127);
  }
  std::string text;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) text += terminal.read();
  text += terminal.read();
  EXPECT_EQ(status, 0) << text;
  return text;
}

TEST_F(DataCommand, TrainingShowsTheFirstSampleInATerminal) {
  const std::string train = kZeno + " train --model " + path("model") + " --data " + path("chat.jsonl") +
                            " --chat-template chatml --device cpu --seq-len 64 --steps 1 --ranks 2 --cache " +
                            path("cache") + plain_flags("");
  const std::string shown = in_terminal(train + " --out " + path("seen"));
  const std::string trained = "\x1b[32mHello!<|im_end|>\x1b[0m";
  const size_t at = shown.find(trained);
  ASSERT_NE(at, std::string::npos) << shown;
  EXPECT_EQ(shown.find(trained, at + 1), std::string::npos) << "by one rank only\n" << shown;
  EXPECT_EQ(expect_ok(train + " --out " + path("unseen")).output.find("first sample"), std::string::npos);
}

}  // namespace
}  // namespace zeno::test
