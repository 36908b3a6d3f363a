#include "zeno/device/buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "zeno/base/error.h"

namespace zeno {
namespace {

TEST(Ledger, GrantsWhatWasBookedAndNoMore) {
  Ledger ledger;
  ledger.book(Tier::device, Purpose::masters, 1000);
  {
    const Buffer buffer(ledger, Tier::device, Purpose::masters, 600);
    EXPECT_EQ(ledger.used(Tier::device), 600u);
    EXPECT_THROW(Buffer(ledger, Tier::device, Purpose::masters, 401), Error);
    EXPECT_THROW(Buffer(ledger, Tier::device, Purpose::moments, 1), Error);  // not booked under this purpose
    EXPECT_THROW(Buffer(ledger, Tier::host, Purpose::masters, 1), Error);
    const Buffer rest(ledger, Tier::device, Purpose::masters, 400);
  }
  EXPECT_EQ(ledger.used(Tier::device), 0u);
  EXPECT_EQ(ledger.peak(Tier::device), 1000u);
  EXPECT_EQ(ledger.booked(Tier::device), 1000u);
}

TEST(Buffer, IsAlignedAndMoves) {
  Ledger ledger;
  ledger.book(Tier::device, Purpose::workspace, 10 << 20);
  Buffer a(ledger, Tier::device, Purpose::workspace, 3 << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0u);
  std::byte* data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(ledger.used(Tier::device), size_t(3) << 20);
  b = Buffer(ledger, Tier::device, Purpose::workspace, 100);
  EXPECT_EQ(ledger.used(Tier::device), 100u);
  b = Buffer();
  EXPECT_EQ(ledger.used(Tier::device), 0u);
}

TEST(Buffer, AFailedAllocationReturnsItsGrant) {
  Ledger ledger;
  ledger.book(Tier::device, Purpose::workspace, 100);
  const Allocator refuses = [](size_t) -> Block { fail(ErrorKind::memory, "no"); };
  EXPECT_THROW(Buffer(ledger, Tier::device, Purpose::workspace, 100, refuses), Error);
  EXPECT_EQ(ledger.used(Tier::device), 0u);
}

TEST(Buffer, NothingTakesNothing) {
  Ledger ledger;
  const Buffer empty(ledger, Tier::device, Purpose::workspace, 0);
  EXPECT_EQ(empty.data(), nullptr);
}

TEST(Ledger, ReportNamesEveryPurpose) {
  Ledger ledger;
  ledger.book(Tier::device, Purpose::moments, 8 << 20);
  ledger.book(Tier::host, Purpose::staging, 512);
  const std::string report = ledger.report();
  EXPECT_NE(report.find("moments"), std::string::npos);
  EXPECT_NE(report.find("8.00 MiB"), std::string::npos);
  EXPECT_NE(report.find("512 B"), std::string::npos);
}

}  // namespace
}  // namespace zeno
