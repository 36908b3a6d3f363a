// How the compute lane spent a step: busy, or idle, and what it was waiting for. A wait is traced back
// through instructions: if computation waits for a gather that waits for the disk, it counts as waiting for
// the disk.
//
// Plain values; nothing is allocated after construction. One thread.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "zeno/zero/program/program.h"

namespace zeno::zero {

// When an instruction ran, in microseconds of the steady clock.
struct InstructionTime {
  double ready = 0, start = 0, end = 0;  // its lane reached it, its waits are over, it is done
};

// What an instruction keeps busy. If several were waited for at once and their times are not known, the one
// listed last here is taken as the cause.
enum class Cause { other, communication, link, disk };
Cause cause_of(const Instruction& in);

// One step of one rank, in milliseconds.
struct StepTimes {
  double compute = 0;        // the compute lane, busy
  double communication = 0;  // idle: waiting for other ranks
  double link = 0;           // idle: for copies between host and device
  double disk = 0;
  double other = 0;  // idle: for updates off the compute lane, or unknown

  double exposed() const { return communication + link + disk + other; }
};

class ExposedTime {
 public:
  explicit ExposedTime(const Program& program);

  // Gives the times of an instruction; all zeros if its lane is not timed. It is called only for instructions
  // that the compute lane has waited for, because other lanes may still be running.
  using Times = std::function<InstructionTime(int)>;
  StepTimes add(const Times& times);
  // How long computation waited for each instruction, over all steps so far, in milliseconds.
  std::span<const double> by_instruction() const { return waited_; }

 private:
  void blame(int i, double from, const Times& times);
  void charge(int i, double us);
  int untold(int i, const Times& times) const;

  const Program& program_;
  std::vector<Cause> causes_;
  std::vector<int> before_;   // the instruction before on the same lane; -1: none
  std::vector<int> carried_;  // the likely cause among the waits on the step before; -1: none
  std::vector<double> waited_;
  StepTimes step_;
};

}  // namespace zeno::zero
