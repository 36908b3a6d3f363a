// Work of one stream recorded once and replayed with one call: a CUDA graph. The CPU has none and needs none.
// A recorded graph keeps its arguments, so the memory they name must stay in place. Thread rule: one stream,
// one thread.
#pragma once

#include <memory>

#include "zeno/device/stream.h"

namespace zeno {

class Graph {
 public:
  static bool supported(Device device) { return device.kind == Device::Kind::cuda; }

  Graph();
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  // Between begin and end, work launched on `stream` is recorded and does not run.
  void begin(StreamRef stream);
  void end(StreamRef stream);
  void replay(StreamRef stream) const;
  bool recorded() const { return impl_ != nullptr; }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace zeno
