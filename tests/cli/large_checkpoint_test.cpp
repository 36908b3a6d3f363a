// A checkpoint with as many extents as one of an 8B model, each of a few hundred bytes: looking at it and
// resuming from it read what is in it once, however many extents there are. Bytes and system calls are
// counted, not time.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

#include "tests/support/cli_runs.h"
#include "tests/support/sanitized.h"
#include "zeno/checkpoint/checkpoint.h"

namespace zeno::test {
namespace {

constexpr int kBlocks = kSanitized ? 134 : 1340;

struct Reads {
  int64_t bytes = 0, calls = 0;
};

// By this process and the children that it has waited for.
Reads reads_so_far() {
  std::ifstream file("/proc/self/io");
  std::map<std::string, int64_t> counts;
  std::string name;
  for (int64_t count = 0; file >> name >> count;) counts[name] = count;
  return {counts["rchar:"], counts["syscr:"]};
}

class LargeCheckpoint : public CliRuns {
 protected:
  void SetUp() override {
    if (!std::ifstream("/proc/self/io")) GTEST_SKIP() << "the kernel does not count reads";
    expect_ok(kZeno + " init --arch llama --hidden 8 --heads 2 --kv-heads 1 --vocab 300 --layers " +
              std::to_string(kBlocks) + " --out " + path("model"));
  }
  Reads reads_of(const std::string& command) {
    const Reads before = reads_so_far();
    expect_ok(command);
    const Reads after = reads_so_far();
    return {after.bytes - before.bytes, after.calls - before.calls};
  }
};

TEST_F(LargeCheckpoint, IsReadOnce) {
  const std::string flags = " --seq-len 16 --micro-batch 1 --steps 1 ";
  const Reads start = reads_of(train_on_cpu("out", flags + "--save-every 1"));
  const Path folder = path("out/checkpoints/step-00000001");
  int64_t bytes = 0, extents = 0;
  for (const std::string& name : list_folder(folder)) bytes += int64_t(size_of_file(folder / name));
  const checkpoint::Manifest manifest = checkpoint::read_manifest(folder);
  for (const checkpoint::StateFile& file : manifest.files) extents += int64_t(file.extents.size());
  EXPECT_GE(extents, kBlocks * 6 * 3);

  const Reads inspect = reads_of(kZeno + " inspect " + folder.string());
  const Reads resume = reads_of(train_on_cpu("resumed", flags + "--resume " + folder.string()));
  constexpr int64_t kPages = 2 * kDirectAlign;  // of an extent that begins on one and ends on the next
  constexpr int64_t kRest = 8 << 20;            // libraries, and headers that are looked at twice
  EXPECT_LE(inspect.bytes, bytes + extents * kPages + kRest);
  EXPECT_LE(resume.bytes - start.bytes, bytes + kRest);
  EXPECT_GE(inspect.bytes, bytes);
  EXPECT_GE(resume.bytes - start.bytes, bytes);
  EXPECT_LE(inspect.calls, extents + 1000);
  EXPECT_LE(resume.calls - start.calls, extents + 1000);
}

}  // namespace
}  // namespace zeno::test
