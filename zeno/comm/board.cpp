#include "zeno/comm/board.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>

#include "zeno/base/error.h"
#include "zeno/base/math.h"

namespace zeno::comm {

void SharedRecord::store(const OpRecord& record) {
  uint64_t words[kWords] = {};
  std::memcpy(words, &record, sizeof record);
  version_.fetch_add(1);  // odd: being written
  for (size_t i = 0; i < kWords; ++i) words_[i].store(words[i]);
  version_.fetch_add(1);
}

OpRecord SharedRecord::load() const {
  uint64_t words[kWords];
  uint64_t before = 0, after = 1;
  // Bounded, because a writer that was killed half-way must not hang its readers.
  for (int tries = 0; tries < 1000 && (before != after || before % 2 != 0); ++tries) {
    before = version_.load();
    for (size_t i = 0; i < kWords; ++i) words[i] = words_[i].load();
    after = version_.load();
  }
  OpRecord record;
  if (before == after && before % 2 == 0) std::memcpy(&record, words, sizeof record);
  return record;
}

size_t Board::slots_at() { return round_up(sizeof(Header), size_t(64)); }
size_t Board::mailboxes_at(int ranks) {
  return round_up(slots_at() + size_t(ranks) * sizeof(Slot), size_t(4096));
}
size_t Board::staging_at(int ranks) {
  return round_up(mailboxes_at(ranks) + size_t(ranks) * size_t(ranks) * sizeof(Mailbox), size_t(4096));
}
size_t Board::bytes(int ranks, size_t staging_bytes) {
  return staging_at(ranks) + size_t(ranks) * kStagingAreas * staging_bytes;
}

void Board::construct(std::byte* memory, int ranks) {
  new (memory) Header;
  for (int r = 0; r < ranks; ++r) new (memory + slots_at() + size_t(r) * sizeof(Slot)) Slot;
  // Mailboxes stay untouched: zeroed memory is an empty mailbox, and unused ones take no pages.
}

Board::Board(std::byte* memory, int ranks, int me, size_t staging_bytes)
    : memory_(memory), ranks_(ranks), me_(me), staging_bytes_(staging_bytes) {
  constexpr int kSpins = 2000;
  // All cores of the machine count: launchers bind this process to one of them, and its peers to others.
  spins_ = ranks <= sysconf(_SC_NPROCESSORS_ONLN) ? kSpins : 0;
}

void Board::post(const OpRecord& record, std::span<const Address> sends, std::span<const Address> recvs) {
  Slot& mine = slot(me_);
  mine.record = record;
  std::copy(sends.begin(), sends.end(), mine.sends);
  std::copy(recvs.begin(), recvs.end(), mine.recvs);
}

bool Board::all_arrived(uint64_t times) const {
  for (int r = 0; r < ranks_; ++r) {
    if (slot(r).arrivals.load() < times) return false;
  }
  return true;
}

void Board::meet(OpWait& wait) {
  const uint64_t times = slot(me_).arrivals.fetch_add(1) + 1;
  const auto ready = [&] { return all_arrived(times); };
  if (ready()) {  // the last one wakes the others
    header().bell.ring();
  } else {
    header().bell.wait_until(ready, wait, spins_);
  }
}

void Board::part(OpWait& wait) {
  meet(wait);
  const uint64_t times = slot(me_).arrivals.load();
  for (int r = 0; r < ranks_; ++r) {
    // That rank arrived too, but may have freed its memory while this one was reading.
    if (const uint64_t left = slot(r).left.load(); left != 0 && left <= times) wait.check_failure();
  }
}

std::vector<int> Board::missing() const {
  const uint64_t times = slot(me_).arrivals.load();
  std::vector<int> ranks;
  for (int r = 0; r < ranks_; ++r) {
    if (slot(r).arrivals.load() < times) ranks.push_back(r);
  }
  return ranks;
}

void Board::enter(OpWait& wait) {
  slot(me_).inside.store(1);
  for (int r = 0; r < ranks_; ++r) {
    if (slot(r).left.load() == 0) continue;
    exit();
    wait.check_failure();
    fail(ErrorKind::internal, "[comm] local rank {} has left, but the world has not failed", r);
  }
}

void Board::leave(std::chrono::milliseconds patience) noexcept {
  slot(me_).inside.store(0);
  slot(me_).left.store(std::max<uint64_t>(1, slot(me_).arrivals.load()));
  const auto begin = std::chrono::steady_clock::now();
  for (int r = 0; r < ranks_; ++r) {
    while (slot(r).inside.load() != 0 && std::chrono::steady_clock::now() - begin < patience) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

std::byte* Board::staging(int rank, int area) const {
  return memory_ + staging_at(ranks_) + size_t(rank * kStagingAreas + area) * staging_bytes_;
}

Mailbox& Board::mailbox(int from, int to) const {
  return reinterpret_cast<Mailbox*>(memory_ + mailboxes_at(ranks_))[from * ranks_ + to];
}

}  // namespace zeno::comm
