// What failures leave of a run's time, and how often it should save. Failures come at random at a constant
// rate; one throws the run back to its last committed checkpoint. Pure functions, seconds throughout.
#pragma once

namespace zeno::plan {

struct Failures {
  double between = 0;  // mean time between failures of the whole run
  double restart = 0;  // from a failure until training resumes: noticing, scheduling, loading
  double stall = 0;    // training stands still for each checkpoint
  double commit = 0;   // from the moment a checkpoint is taken until it is safe; training continues meanwhile
};

// Mean time between failures of `ranks` devices, each of which fails once in `device_hours`.
double run_mtbf(double device_hours, int ranks);

// The part of the time that is progress when a checkpoint is taken every `interval` seconds of training.
double goodput(const Failures& failures, double interval);

// The interval with the highest goodput; not below the time a checkpoint takes to commit, because one is
// written at a time.
double best_interval(const Failures& failures);

}  // namespace zeno::plan
