// Promise 4 with real processes: one rank of an MPI job is killed in the middle of a step; the others say
// who, where and for which unit, and leave with exit code 6 well before any deadline.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/command.h"
#include "tests/support/temp_dir.h"

namespace zeno::test {
namespace {

using namespace std::chrono_literals;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Each rank runs under a shell that notes its process id, its output and how it ended. The launcher is told
// to leave the others alone (--enable-recovery): they must find out by themselves.
constexpr const char* kWrapper = R"(#!/bin/bash
r=$OMPI_COMM_WORLD_RANK
"$@" > $DIR/out.$r 2>&1 &
echo $! > $DIR/pid.$r.new; mv $DIR/pid.$r.new $DIR/pid.$r
wait $!
echo $? > $DIR/code.$r
)";

TEST(KilledRank, EndsAllOthersWithItsName) {
  const TempDir dir;
  const auto path = [&](const std::string& name) { return (dir.path() / name).string(); };
  ASSERT_EQ(run_command(kZeno + " init --hidden 64 --layers 4 --heads 4 --vocab 260 --out " + path("model"))
                .exit_code,
            0);
  dir.write("wrapper.sh", kWrapper);
  const pid_t job = fork();
  if (job == 0) {
    setenv("DIR", dir.path().c_str(), 1);
    const std::string command =
        "mpirun --allow-run-as-root --oversubscribe --enable-recovery -x DIR -n 3 bash " +
        path("wrapper.sh") + " " + kZeno + " train --model " + path("model") +
        " --data generated --no-auto --steps 100000 --seq-len 64 --stage 3 --device cpu --out " +
        path("out") + " > " + path("mpirun.log") + " 2>&1";
    execl("/bin/bash", "bash", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  // Killed while it trains: the metrics have a few lines.
  const auto lines = [&] {
    const std::string text = text_of(path("out/metrics.jsonl"));
    return std::count(text.begin(), text.end(), '\n');
  };
  const auto give_up = std::chrono::steady_clock::now() + 60s;
  while (lines() < 5 && std::chrono::steady_clock::now() < give_up) std::this_thread::sleep_for(20ms);
  ASSERT_GE(lines(), 5) << text_of(path("mpirun.log")) << text_of(path("out.0"));
  kill(std::stoi(text_of(path("pid.1"))), SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  const auto ended = [&] {
    return std::filesystem::exists(path("code.0")) && std::filesystem::exists(path("code.2"));
  };
  while (!ended() && std::chrono::steady_clock::now() < killed + 10s) std::this_thread::sleep_for(20ms);
  EXPECT_TRUE(ended()) << "still running ten seconds later";
  kill(job, SIGTERM);
  waitpid(job, nullptr, 0);
  for (const char* rank : {"0", "2"}) {
    const std::string output = text_of(path(std::string("out.") + rank));
    EXPECT_EQ(text_of(path(std::string("code.") + rank)), "6\n") << output;
    EXPECT_NE(output.find("rank 1"), std::string::npos) << output;
    const bool operation = output.find("all_gather") != std::string::npos ||
                           output.find("reduce_scatter") != std::string::npos ||
                           output.find("exchange") != std::string::npos;
    EXPECT_TRUE(operation) << output;
  }
}

}  // namespace
}  // namespace zeno::test
