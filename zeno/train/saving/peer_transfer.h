// Files and small texts between ranks that do not see the same folder, over a communicator and streams of
// their own: the streams of training are not touched.
//
// Owns its buffers. All calls block. A rank that cannot read or write tells the other side and still takes
// part, so that no rank waits for it; a rank that is gone is an Error(peer). Thread rule: one thread at a
// time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/comm/world.h"
#include "zeno/device/stream.h"

namespace zeno::train {

class PeerTransfer {
 public:
  // Collective.
  explicit PeerTransfer(comm::World& world);

  // One end of a transfer; the rank at the other end calls move() with its own.
  struct End {
    int rank = -1;  // -1: nothing this way
    Path file;
  };
  // Sends one file and receives another at the same time, in pieces. A received file is there whole or not at
  // all. Throws after the other side has been served.
  void move(const End& out, const End& in);

  // Collective: the texts of all ranks.
  std::vector<std::string> gather(const std::string& mine);

 private:
  void pass(int to, const void* out, int64_t out_bytes, int from, void* in, int64_t in_bytes);

  std::vector<std::byte> outgoing_, incoming_;
  std::unique_ptr<comm::Communicator> comm_;
  Stream send_, receive_;  // two: ranks may send to each other
};

}  // namespace zeno::train
