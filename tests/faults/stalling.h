// A disk that stops answering or becomes read-only when a test says so (stalling_disk.cpp), and goes on when
// it says that.
#pragma once

#include <signal.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/support/temp_dir.h"
#include "zeno/train/supervisor.h"

namespace zeno::test {

class StallingDisk {
 public:
  // Containers may keep FUSE, or any mounting, from root too.
  static bool available() {
    try {
      const StallingDisk tried;
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  StallingDisk() {
    std::filesystem::create_directories(dir_.path() / "files");
    std::filesystem::create_directories(path());
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);
      execl(STALLING_DISK, STALLING_DISK, (dir_.path() / "files").c_str(), path().c_str(), nullptr);
      _exit(127);
    }
    const auto gave_up = [this] { return waitpid(pid_, nullptr, WNOHANG) == pid_; };
    for (int tries = 0; tries < 4000 && !mounted(); ++tries) {
      if (gave_up()) throw std::runtime_error("cannot mount a FUSE file system");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (mounted()) return;
    end();
    throw std::runtime_error("a FUSE file system does not come up");
  }
  // Calls that still hang fail.
  ~StallingDisk() { end(); }
  StallingDisk(const StallingDisk&) = delete;
  StallingDisk& operator=(const StallingDisk&) = delete;

  std::filesystem::path path() const { return dir_.path() / "disk"; }
  // The same files, past the disk.
  std::filesystem::path files() const { return dir_.path() / "files"; }
  // Calls hang; the kernel lets processes be killed in them.
  void stop() const {
    kill(pid_, SIGUSR1);
    for (int tries = 0; tries < 2000 && train::stat_of(pid_).state != 'T'; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // The next call hangs so that the kernel does not let its thread go, killed or not.
  void stop_hard() const { kill(pid_, SIGUSR2); }
  // Calls that change something fail with EROFS.
  void become_read_only() const { kill(pid_, SIGHUP); }
  void go_on() const { kill(pid_, SIGCONT); }

 private:
  void end() const {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    umount2(path().c_str(), MNT_DETACH);
  }
  bool mounted() const {
    constexpr long kFuse = 0x65735546;
    struct statfs info;
    return statfs(path().c_str(), &info) == 0 && info.f_type == kFuse;
  }

  TempDir dir_;
  pid_t pid_ = -1;
};

}  // namespace zeno::test
