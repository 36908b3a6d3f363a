// The place where the ranks of one host meet: memory that all of them see, plain for threads, shared for
// processes. Every rank posts what it is about to do and where its buffers are, then meets the others;
// afterwards each may read what the others posted. The memory also holds the staging areas for buffers that
// peers cannot address, and the mailboxes of send and recv. A Board is one rank's view of it and does not own
// it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "zeno/comm/failure.h"
#include "zeno/comm/flight/op_record.h"
#include "zeno/comm/futex.h"

namespace zeno::comm {

// How a rank names a buffer to the peers on its host. Only PeerMemory interprets the numbers.
struct Address {
  bool shared = false;  // peers can read it in place; otherwise it is staged
  uint64_t block = 0, block_bytes = 0, offset = 0;
};

// A record that others may read while it is being replaced: they get the old one or the new one, never a mix.
class SharedRecord {
 public:
  void store(const OpRecord& record);
  OpRecord load() const;

 private:
  static constexpr size_t kWords = (sizeof(OpRecord) + 7) / 8;
  std::atomic<uint64_t> version_{0};
  std::atomic<uint64_t> words_[kWords] = {};
};

// What one rank tells another about one part of an all_to_all: which elements of its send buffer are for that
// rank, and how many it expects from it.
struct ExchangeNote {
  int64_t begin = 0, count = 0, expected = 0;
};

// One direction between two ranks: a ring of chunks, each with the record of its message, and the notes of
// the all_to_all that is running.
struct Mailbox {
  static constexpr int kNotes = 32;
  static constexpr size_t kChunkBytes = 64 << 10;
  static constexpr uint64_t kChunks = 2;
  struct Chunk {
    OpRecord record;
    std::byte data[kChunkBytes];
  };
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
  Bell bell;
  alignas(64) ExchangeNote notes[kNotes];
  alignas(64) Chunk chunks[kChunks];
};

class Board {
 public:
  static constexpr int kMostParts = Mailbox::kNotes;  // in one rendezvous
  static constexpr int kStagingAreas = 2;             // one for what is sent, one for results that peers read

  static size_t bytes(int ranks, size_t staging_bytes);
  // Called once, by the rank that made the memory (zeroed, page-aligned), before any other rank reads it.
  static void construct(std::byte* memory, int ranks);

  // `me` is this rank's index among the ranks of this host. One operation at a time may use the view.
  Board(std::byte* memory, int ranks, int me, size_t staging_bytes);

  int ranks() const { return ranks_; }
  int me() const { return me_; }

  // Writes this rank's record and addresses; the others see them after the next meet().
  void post(const OpRecord& record, std::span<const Address> sends, std::span<const Address> recvs);
  // Returns when all ranks have called it as often as this one; throws when that will not happen.
  void meet(OpWait& wait);
  // The meeting that ends an operation: also throws when a rank left in the middle of it.
  void part(OpWait& wait);
  // Local ranks that have not arrived at this rank's current meeting.
  std::vector<int> missing() const;

  // Between enter() and exit() this rank reads the memory of others. A failing rank calls leave() before it
  // frees its own memory: no rank enters afterwards, and leave() waits, for at most `patience`, until none is
  // inside.
  void enter(OpWait& wait);
  void exit() { slot(me_).inside.store(0); }
  void leave(std::chrono::milliseconds patience) noexcept;

  const OpRecord& record(int rank) const { return slot(rank).record; }
  const Address& send_address(int rank, int part) const { return slot(rank).sends[part]; }
  const Address& recv_address(int rank, int part) const { return slot(rank).recvs[part]; }

  void set_done(const OpRecord& record) { slot(me_).last_done.store(record); }
  OpRecord last_done(int rank) const { return slot(rank).last_done.load(); }

  std::byte* staging(int rank, int area) const;
  Mailbox& mailbox(int from, int to) const;
  // How many times to spin before sleeping: 0 when there are more ranks than cores.
  int spins() const { return spins_; }

 private:
  struct alignas(64) Slot {
    std::atomic<uint64_t> arrivals{0};
    std::atomic<uint32_t> inside{0};
    std::atomic<uint64_t> left{0};  // arrivals when it left; 0: it has not left
    alignas(64) OpRecord record;
    Address sends[kMostParts], recvs[kMostParts];
    SharedRecord last_done;
  };
  struct alignas(64) Header {
    Bell bell;
  };

  static size_t slots_at();
  static size_t mailboxes_at(int ranks);
  static size_t staging_at(int ranks);

  Header& header() const { return *reinterpret_cast<Header*>(memory_); }
  Slot& slot(int rank) const { return reinterpret_cast<Slot*>(memory_ + slots_at())[rank]; }
  bool all_arrived(uint64_t times) const;

  std::byte* memory_;
  int ranks_;
  int me_;
  size_t staging_bytes_;
  int spins_;
};

}  // namespace zeno::comm
