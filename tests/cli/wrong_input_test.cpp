// A new user's mistakes: each is one line that says what is wrong, where, and what to do, with the right exit
// code, or it just works.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/command.h"
#include "tests/support/mpirun.h"
#include "tests/support/plain_flags.h"
#include "tests/support/temp_dir.h"

namespace zeno::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

const std::string kGoldenFiles = std::string(ZENO_SOURCE_DIR) + "/tests/golden/";

class WrongInput : public testing::Test {
 protected:
  void SetUp() override {
    const CommandResult made =
        run_command(kZeno +
                    " init --arch llama --hidden 32 --layers 2 --heads 4 --kv-heads 2 --vocab 260 "
                    "--max-positions 128 --out " +
                    path("model"));
    ASSERT_EQ(made.exit_code, 0) << made.output;
    dir_.write("good.jsonl", chats(20));
  }

  static std::string chats(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      text += R"({"messages": [{"role": "user", "content": "say )" + std::to_string(i) +
              R"("}, {"role": "assistant", "content": ")" + std::to_string(i) + "\"}]}\n";
    }
    return text;
  }
  std::string path(const std::string& name) const { return (dir_.path() / name).string(); }
  std::string command(const std::string& data, const std::string& more = "",
                      const std::string& model = "model") const {
    return kZeno + " train --model " + path(model) + " --data " + path(data) + " --cache " + path("cache") +
           " --out " + path("out") + " --device cpu --steps 2 --seq-len 64 --chat-template chatml" +
           plain_flags(more) + more;
  }
  // The last line is the error, and the only one.
  static void expect(const std::string& command, int code, const std::vector<std::string>& parts) {
    const CommandResult result = run_command(command);
    EXPECT_EQ(result.exit_code, code) << result.output;
    const std::string text = result.output.substr(0, result.output.size() - 1);
    const std::string last = text.substr(text.rfind('\n') + 1);
    for (const std::string& part : parts) {
      EXPECT_NE(last.find(part), std::string::npos) << "'" << part << "' is missing in: " << result.output;
    }
    const size_t first = text.find("error: ");
    ASSERT_NE(first, std::string::npos) << result.output;
    EXPECT_EQ(text.find("error: ", first + 1), std::string::npos) << result.output;
  }

  TempDir dir_;
};

TEST_F(WrongInput, Files) {
  dir_.write("empty.jsonl", "");
  expect(command("empty.jsonl"), 3, {"empty.jsonl", "no samples"});
  dir_.write("users.jsonl", R"({"messages": [{"role": "user", "content": "x"}]})");
  expect(command("users.jsonl"), 3, {"users.jsonl", "nothing to train on", "assistant"});
  dir_.write("bad.jsonl", chats(10) + "{\"messages\": [{\n" + chats(5));
  expect(command("bad.jsonl"), 3, {"bad.jsonl:11", "JSON", "--skip-bad-lines"});
  EXPECT_EQ(run_command(command("bad.jsonl", "--skip-bad-lines")).exit_code, 0);
  dir_.write("ids.jsonl", "{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [1, 2, 260]}\n");
  expect(command("ids.jsonl"), 3, {"ids.jsonl:2", "260", "vocabulary"});
  expect(command("none.jsonl"), 3, {"none.jsonl", "no such file"});
  dir_.write("pointer.jsonl", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
  expect(command("pointer.jsonl"), 3, {"pointer.jsonl", "git lfs pull"});
  dir_.write("pairs.jsonl", R"({"prompt": "a", "chosen": "b", "rejected": "c"})");
  expect(command("pairs.jsonl"), 3, {"pairs.jsonl:1", "'chosen'", "--columns"});
  EXPECT_EQ(run_command(command("pairs.jsonl", "--columns completion=chosen")).exit_code, 0);
  expect(command("pairs.jsonl", "--columns answer=chosen"), 2, {"--columns", "'answer'", "completion"});
  dir_.write("long.jsonl", R"({"prompt": ")" + std::string(200, 'x') + R"(", "completion": "a"})");
  expect(command("long.jsonl"), 3, {"--seq-len 64 cut away every sample", "--too-long"});
  expect(command("good.jsonl", "--eval-split 0.999"), 3, {"0.999", "20 of 20", "--eval-split"});
}

// However many ranks there are, whoever of them sees it.
TEST_F(WrongInput, DataErrorsAreToldOnce) {
  dir_.write("bad.jsonl", chats(2) + "{\"messages\": [{\n");
  dir_.write("long.jsonl", R"({"prompt": ")" + std::string(200, 'x') + R"(", "completion": "a"})");
  for (const std::string file : {"bad.jsonl", "long.jsonl"}) {
    expect(command(file, "--ranks 4"), 3, {file == "bad.jsonl" ? "bad.jsonl:3" : "--seq-len 64"});
    const CommandResult result = run_command(mpirun(2) + command(file));
    EXPECT_EQ(result.exit_code, 3) << result.output;
    const size_t first = result.output.find("error: [data]");
    ASSERT_NE(first, std::string::npos) << result.output;
    EXPECT_EQ(result.output.find("error: ", first + 1), std::string::npos) << result.output;
    EXPECT_FALSE(fs::exists(path("out") + "/flight-recorder.txt")) << "no operation is to blame";
  }
}

TEST_F(WrongInput, Templates) {
  dir_.write("raise.jinja", "{{ raise_exception('roles must alternate') }}");
  const auto with = [&](const std::string& name) {
    std::string text = command("good.jsonl");
    const size_t at = text.find("chatml");
    return text.replace(at, 6, path(name));
  };
  expect(with("raise.jinja"), 3, {"good.jsonl:1", "raise.jinja", "roles must alternate"});
  dir_.write("broken.jinja", "{% for x in %}");
  expect(with("broken.jinja"), 3, {"broken.jinja, line 1", "expected"});
  expect(with("none.jinja"), 2, {"none.jinja", "no such file", "chatml"});
  expect(command("good.jsonl", "--chat-date tomorrow"), 2, {"--chat-date", "tomorrow", "YYYY-MM-DD"});
}

TEST_F(WrongInput, Models) {
  fs::copy(path("model"), path("mute"));
  fs::remove(path("mute") + "/tokenizer.json");
  expect(command("good.jsonl", "", "mute"), 2, {"mute", "tokenizer.json"});
  expect(command("good.jsonl", "", "none"), 3, {"none/config.json", "model folder"});
  expect(kZeno + " train --data " + path("good.jsonl") + " --out " + path("out"), 2, {"--model"});
  expect(kZeno + " eval --data " + path("good.jsonl"), 2, {"--model"});
  std::string text = command("good.jsonl");
  text.replace(text.find("--seq-len 64"), 12, "--seq-len 256");
  const CommandResult warned = run_command(text);
  EXPECT_EQ(warned.exit_code, 0) << warned.output;
  EXPECT_NE(warned.output.find("--seq-len 256: the model was made for sequences up to 128"),
            std::string::npos)
      << warned.output;
}

TEST_F(WrongInput, Adapters) {
  expect(command("good.jsonl", "--lora-rank 4 --lora-targets nope"), 2, {"\"nope\"", "q_proj"});
  expect(command("good.jsonl", "--lora-targets q_proj"), 2, {"--lora-rank"});
  expect(command("good.jsonl", "--adapter " + kGoldenFiles + "lora/llama_qv"), 3,
         {"q_proj", "[4, 48]", "[4, 32]"});
  expect(command("good.jsonl", "--adapter " + path("model")), 3, {"model/adapter_config.json", "PEFT"});
  const CommandResult good = run_command(command("good.jsonl", "--lora-rank 4 --lora-targets q_proj,v_proj"));
  EXPECT_EQ(good.exit_code, 0) << good.output;
  EXPECT_TRUE(fs::exists(path("out") + "/adapter_config.json"));
}

TEST_F(WrongInput, Flags) {
  expect(command("good.jsonl", "--learning-rate 1"), 2,
         {"unknown flag --learning-rate", "zeno train --help"});
  expect(command("good.jsonl", "--lr abc"), 2, {"--lr", "\"abc\"", "a number"});
}

// What goes wrong at the end does not cost the model.
TEST_F(WrongInput, AModelThatNoRunHasMadeIsNotReplaced) {
  fs::copy(path("model"), path("out"), fs::copy_options::recursive);
  expect(command("good.jsonl", ""), 2, {"--out " + path("out"), "would be overwritten"});
  EXPECT_FALSE(fs::exists(path("out") + "/metrics.jsonl"));
}

TEST_F(WrongInput, AnArgumentThatIsNotUtf8) {
  expect(command("good.jsonl", "--log mod\xe8le"), 2, {"is not UTF-8"});
}

TEST_F(WrongInput, ATraceThatCannotBeWritten) {
  expect(command("good.jsonl", "--trace /proc/none/x.json"), 5, {"/proc/none/x.json"});
  EXPECT_FALSE(fs::exists(path("out") + "/metrics.jsonl")) << "found out before the first step";
}

TEST_F(WrongInput, TheReportShowsTheCommandAsAShellTakesIt) {
  ASSERT_EQ(run_command(command("good.jsonl", "--skip-bad-lines --template-extra '{\"a\": 1}'")).exit_code,
            0);
  std::ifstream file(path("out") + "/report.html");
  const std::string report{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(report.find(">zeno train --"), std::string::npos);
  EXPECT_NE(report.find(" --model " + path("model")), std::string::npos);
  EXPECT_NE(report.find(" --template-extra &#39;{&quot;a&quot;: 1}&#39;"), std::string::npos);
  EXPECT_NE(report.find(" --skip-bad-lines"), std::string::npos);
}

TEST_F(WrongInput, AFileThatChangesIsReadAgain) {
  const auto samples = [&] {
    const std::string output = run_command(command("good.jsonl")).output;
    const size_t at = output.find("[dataset] ");
    return at == std::string::npos ? output : output.substr(at, output.find(',', at) - at);
  };
  EXPECT_EQ(samples(), "[dataset] 20 samples");
  EXPECT_EQ(samples(), "[dataset] 20 samples");
  dir_.write("good.jsonl", chats(21));
  EXPECT_EQ(samples(), "[dataset] 21 samples");
}

TEST_F(WrongInput, TwoRunsShareACache) {
  dir_.write("large.jsonl", chats(40000));
  CommandResult other;
  std::thread run([&] {
    std::string text = command("large.jsonl");
    text.replace(text.find(path("out")), path("out").size(), path("other"));
    other = run_command(text);
  });
  const CommandResult mine = run_command(command("large.jsonl"));
  run.join();
  EXPECT_EQ(mine.exit_code, 0) << mine.output;
  EXPECT_EQ(other.exit_code, 0) << other.output;
  EXPECT_EQ(std::distance(fs::directory_iterator(path("cache") + "/datasets"), {}), 1);
}

TEST_F(WrongInput, CtrlCWhileReadingTheData) {
  dir_.write("large.jsonl", chats(400000));
  const pid_t job = fork();
  if (job == 0) {
    execl("/bin/bash", "bash", "-c",
          ("exec " + command("large.jsonl") + " > " + path("job.log") + " 2>&1").c_str(), nullptr);
    _exit(127);
  }
  const fs::path datasets = path("cache") + "/datasets";
  const auto give_up = std::chrono::steady_clock::now() + 60s;
  while (!fs::exists(datasets) && std::chrono::steady_clock::now() < give_up)
    std::this_thread::sleep_for(2ms);
  kill(job, SIGINT);
  int status = 0;
  waitpid(job, &status, 0);
  std::ifstream file(path("job.log"));
  const std::string log{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 2) << status << log;
  EXPECT_NE(log.find("interrupted while reading the data"), std::string::npos) << log;
  EXPECT_TRUE(fs::is_empty(datasets));
}

}  // namespace
}  // namespace zeno::test
