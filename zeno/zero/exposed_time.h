// Where the time of a step went on the compute lane: computing, or standing still, and then for what. A wait
// is followed back through the instructions that it was for, so that computation that waits for a gather that
// waits for the disk has waited for the disk.
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
  double ready = 0, start = 0, end = 0;  // reached by its lane, waits over, done
};

// What an instruction keeps busy. In order of strength: of several things waited for at once, whose times
// are not known, the last named is the likely one.
enum class Cause { other, communication, link, disk };
Cause cause_of(const Instruction& in);

// One step of one rank, in milliseconds.
struct StepTimes {
  double compute = 0;        // the compute lane, busy
  double communication = 0;  // standing still: for other ranks
  double link = 0;           // for copies between host and device
  double disk = 0;
  double other = 0;  // for updates beside the compute lane, and what cannot be told

  double exposed() const { return communication + link + disk + other; }
};

class ExposedTime {
 public:
  explicit ExposedTime(const Program& program);

  // Of an instruction of the step; all zeros where its lane is not timed. Only what the compute lane has
  // waited for is asked, because other lanes may still be at work.
  using Times = std::function<InstructionTime(int)>;
  StepTimes add(const Times& times);
  // For how long computation stood still for each instruction, over all steps so far, in milliseconds.
  std::span<const double> by_instruction() const { return waited_; }

 private:
  void blame(int i, double from, const Times& times);
  void charge(int i, double us);
  int untold(int i, const Times& times) const;

  const Program& program_;
  std::vector<Cause> causes_;
  std::vector<int> before_;   // the instruction before on the same lane; -1: none
  std::vector<int> carried_;  // the likely one of those of the step before; -1: none
  std::vector<double> waited_;
  StepTimes step_;
};

}  // namespace zeno::zero
