// The account of one rank's memory: first every size is booked under a purpose, then memory is granted
// against the booking. Granting more than was booked is an error, so the plan printed before the first step
// is the truth of the run. Bookings are made by plan and run through the same code; a plan just never grants.
// Thread rule: one ledger per rank; calls are serialised inside.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <string>

#include "zeno/device/memory.h"

namespace zeno {

class Ledger {
 public:
  void book(Tier tier, Purpose purpose, size_t bytes);

  // Called by Buffer. take() throws an internal Error when the booking does not cover it.
  void take(Tier tier, Purpose purpose, size_t bytes);
  void give_back(Tier tier, Purpose purpose, size_t bytes);

  size_t booked(Tier tier) const;
  size_t booked(Tier tier, Purpose purpose) const;
  size_t used(Tier tier) const;
  // Peak number of bytes in use.
  size_t peak(Tier tier) const;
  size_t peak(Tier tier, Purpose purpose) const;
  // One line per purpose with booked bytes, and the total.
  std::string report() const;

 private:
  struct Account {
    size_t booked = 0, used = 0, peak = 0;
  };
  mutable std::mutex mutex_;
  std::array<std::array<Account, kPurposes>, kTiers.size()> accounts_{};
  std::array<size_t, kTiers.size()> used_{}, peak_{};
};

// "1.50 GiB", "12 B".
std::string format_bytes(size_t bytes);

}  // namespace zeno
