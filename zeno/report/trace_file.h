// Writes what a run did when as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing: one process per
// rank, one track per stream.
#pragma once

#include <span>
#include <string>

#include "zeno/base/file.h"

namespace zeno::report {

struct TraceSpan {
  std::string name;      // instruction: "forward blocks.3"
  std::string category;  // compute, gather, reduce, …
  int rank = 0;
  std::string stream;
  double start_us = 0, duration_us = 0;  // from a common zero
  std::string unit;                      // empty: none
  int micro_batch = -1;                  // -1: none
};

// Writes or replaces the file in one step.
void write_trace(const Path& path, std::span<const TraceSpan> spans);

}  // namespace zeno::report
