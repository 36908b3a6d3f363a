// Sends files and small texts between ranks that do not see the same folder, over a separate communicator and
// separate streams, so that training is not disturbed.
//
// All calls block. A rank that cannot read or write tells the other side and still takes part, so that no
// rank waits for it; a rank that is gone is an Error(peer). Thread rule: one thread at a time.
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
    int rank = -1;  // -1: nothing in this direction
    Path file;
  };
  // Sends one file and receives another at the same time, in pieces. A received file is complete or does not
  // exist. Errors are thrown at the end, after the other side has got its data.
  void move(const End& out, const End& in);

  // Collective: returns the texts of all ranks.
  std::vector<std::string> gather(const std::string& mine);

 private:
  void pass(int to, const void* out, int64_t out_bytes, int from, void* in, int64_t in_bytes);

  std::vector<std::byte> outgoing_, incoming_;
  std::unique_ptr<comm::Communicator> comm_;
  Stream send_, receive_;  // two: ranks may send to each other
};

}  // namespace zeno::train
