#include "zeno/device/ledger.h"

#include <algorithm>

#include "zeno/base/error.h"

namespace zeno {

void Ledger::book(Tier tier, Purpose purpose, size_t bytes) {
  const std::scoped_lock lock(mutex_);
  accounts_[int(tier)][int(purpose)].booked += bytes;
}

void Ledger::take(Tier tier, Purpose purpose, size_t bytes) {
  const std::scoped_lock lock(mutex_);
  Account& account = accounts_[int(tier)][int(purpose)];
  ensure(account.used + bytes <= account.booked,
         "[ledger] {} on {}: {} bytes in use and {} requested, but only {} booked", name_of(purpose),
         name_of(tier), account.used, bytes, account.booked);
  account.used += bytes;
  account.peak = std::max(account.peak, account.used);
  used_[int(tier)] += bytes;
  peak_[int(tier)] = std::max(peak_[int(tier)], used_[int(tier)]);
}

void Ledger::give_back(Tier tier, Purpose purpose, size_t bytes) {
  const std::scoped_lock lock(mutex_);
  accounts_[int(tier)][int(purpose)].used -= bytes;
  used_[int(tier)] -= bytes;
}

size_t Ledger::booked(Tier tier) const {
  const std::scoped_lock lock(mutex_);
  size_t sum = 0;
  for (const Account& account : accounts_[int(tier)]) sum += account.booked;
  return sum;
}

size_t Ledger::booked(Tier tier, Purpose purpose) const {
  const std::scoped_lock lock(mutex_);
  return accounts_[int(tier)][int(purpose)].booked;
}

size_t Ledger::used(Tier tier) const {
  const std::scoped_lock lock(mutex_);
  return used_[int(tier)];
}

size_t Ledger::peak(Tier tier) const {
  const std::scoped_lock lock(mutex_);
  return peak_[int(tier)];
}

size_t Ledger::peak(Tier tier, Purpose purpose) const {
  const std::scoped_lock lock(mutex_);
  return accounts_[int(tier)][int(purpose)].peak;
}

std::string Ledger::report() const {
  std::string text;
  for (Tier tier : kTiers) {
    if (booked(tier) == 0) continue;
    for (int p = 0; p < kPurposes; ++p) {
      const size_t bytes = booked(tier, Purpose(p));
      if (bytes > 0) {
        text +=
            fmt::format("  {:<6} {:<12} {:>12}\n", name_of(tier), name_of(Purpose(p)), format_bytes(bytes));
      }
    }
    text += fmt::format("  {:<6} {:<12} {:>12}\n", name_of(tier), "total", format_bytes(booked(tier)));
  }
  return text;
}

std::string format_bytes(size_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = double(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

}  // namespace zeno
