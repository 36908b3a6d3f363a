// Snapshots that go while somebody looks for them.
#include "zeno/train/saving/peer_folder.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/support/temp_dir.h"
#include "zeno/checkpoint/checkpoint.h"
#include "zeno/checkpoint/state_file.h"

namespace zeno::train {
namespace {

// What is removed as soon as somebody has seen that it is there.
class VanishingPath final : public FileSystem {
 public:
  explicit VanishingPath(Path path) : path_(std::move(path)) {}

  int open(const char* path, int flags, mode_t mode) override {
    vanish(path);
    return FileSystem::open(path, flags, mode);
  }
  int stat(const char* path, struct stat* info) override {
    const int result = FileSystem::stat(path, info);
    vanish(path);
    return result;
  }
  bool has_gone() const { return gone_; }

 private:
  void vanish(const char* path) {
    if (path_ != path) return;
    std::filesystem::remove_all(path_);
    gone_ = true;
  }

  Path path_;
  bool gone_ = false;
};

TEST(PeerFolder, ARunThatEndsMeanwhileIsNoError) {
  for (int which = 0; which < 3; ++which) {
    const test::TempDir dir;
    config::RunConfig run;
    run.out = (dir.path() / "out").string();
    run.peer_snapshot_dir = (dir.path() / "memory").string();
    run.peer_snapshot = 1;
    make_folders(run.out);
    const auto world = comm::make_self_world();
    PeerFolder folder(run, *world);
    folder.begin(0);
    const Path snapshot = folder.path() / checkpoint::checkpoint_name(3);
    make_folders(snapshot);
    replace_file(snapshot / checkpoint::kManifestName, "{}");
    ASSERT_EQ(list_peer_snapshots(run).size(), 1u);

    const Path gone[] = {Path(run.out) / "peer_snapshots.id", folder.path() / "id", folder.path()};
    VanishingPath vanishing(gone[which]);
    const FileSystemOverride in_use(vanishing);
    EXPECT_TRUE(list_peer_snapshots(run).empty()) << gone[which];
    EXPECT_TRUE(vanishing.has_gone());
  }
}

}  // namespace
}  // namespace zeno::train
