// Times at which streams of one device passed certain points. Marks are numbered; reading one is allowed once
// the streams have passed it (after synchronize). Thread rule: as for the streams.
#pragma once

#include <cstddef>
#include <memory>

#include "zeno/device/stream.h"

namespace zeno {

class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  virtual void mark(StreamRef stream, size_t index) = 0;
  // Microseconds on a clock common to all marks; 0 for a mark that was never passed.
  virtual double us(size_t index) const = 0;
};

std::unique_ptr<Stopwatch> make_stopwatch(Device device, size_t marks);

}  // namespace zeno
