// Times at which streams of one device passed certain points. Marks are numbered; reading one is allowed once
// its stream has passed it, and waits for nothing. Thread rule: as for the streams.
#pragma once

#include <cstddef>
#include <memory>

#include "zeno/device/stream.h"

namespace zeno {

class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  virtual void mark(StreamRef stream, size_t index) = 0;
  // Microseconds on a clock common to all marks. On a GPU the older the stopwatch the coarser: after an hour
  // half a millisecond.
  virtual double us(size_t index) const = 0;
  // From one mark to another (before it: negative), to the microsecond where they are seconds apart.
  virtual double since(size_t from, size_t to) const = 0;
};

std::unique_ptr<Stopwatch> make_stopwatch(Device device, size_t marks);

}  // namespace zeno
