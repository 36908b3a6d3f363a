#include "zeno/report/page/report_memory.h"

#include <cstring>
#include <type_traits>

#include "zeno/base/error.h"

namespace zeno::report {

static_assert(std::is_trivially_copyable_v<RankMemory>);

RankMemory memory_of(const Ledger& ledger) {
  RankMemory memory;
  for (const Tier tier : kTiers) {
    for (int p = 0; p < kPurposes; ++p) {
      const Purpose purpose = Purpose(p);
      memory.by_purpose[size_t(tier)][size_t(p)] = {ledger.booked(tier, purpose), ledger.peak(tier, purpose)};
    }
    memory.total[size_t(tier)] = {ledger.booked(tier), ledger.peak(tier)};
  }
  return memory;
}

std::string pack_memory(const Ledger& ledger) {
  const RankMemory memory = memory_of(ledger);
  return {reinterpret_cast<const char*>(&memory), sizeof(memory)};
}

RankMemory unpack_memory(std::string_view bytes) {
  RankMemory memory;
  ensure(bytes.size() == sizeof(memory), "[report] memory of a rank: got {} bytes, expected {}", bytes.size(),
         sizeof(memory));
  std::memcpy(&memory, bytes.data(), sizeof(memory));
  return memory;
}

}  // namespace zeno::report
