// Holds the clock of a GPU, while a run lasts, where the power cap lets it settle.
//
// At the cap the driver steers by the power of the last tenths of a second and overshoots: the clock swings
// by a tenth about once a second, which takes more energy than a steady one for the same work, hence more
// time (2 % of a step on an H200, docs/performance.md). Setting clocks takes the rights of root, so a user
// has to ask for it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace zeno {

// Of clocks measured under load, in MHz, the one that nine tenths of them reach.
int sustained_clock(std::vector<int> seen);

class ClockLimit {
 public:
  // `gpu` as nvidia-smi, which is `tool`, takes it: an index or a PCI address. Frees its clock, to see
  // whether this process may: Error(usage) if not.
  explicit ClockLimit(const std::string& gpu, const std::string& tool = "nvidia-smi");
  // The clock is free again when this returns, and soon after the death of a process that never gets here.
  ~ClockLimit();
  ClockLimit(const ClockLimit&) = delete;
  ClockLimit& operator=(const ClockLimit&) = delete;

  // From now on the GPU has its usual load. After some seconds of it the clock is limited.
  void begin();
  // MHz; 0: not yet.
  int clock() const { return clock_; }

 private:
  void send(const std::string& line) const;
  std::string receive();  // a line; empty: there will be no more
  void watch();
  void end();

  std::string gpu_;
  int socket_ = -1;
  pid_t keeper_ = -1;  // the process that sets the clock, and frees it when this process has ended
  std::string received_;
  std::atomic<int> clock_ = 0;
  std::thread watcher_;
};

}  // namespace zeno
