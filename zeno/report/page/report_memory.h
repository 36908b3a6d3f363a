// From a rank's Ledger to the memory bars of the report. Ranks send their accounts as bytes to rank 0:
//   for (const std::string& bytes : world.exchange(pack_memory(engine.ledger())))
//   data.memory.push_back(unpack_memory(bytes));
#pragma once

#include <string>
#include <string_view>

#include "zeno/device/ledger.h"
#include "zeno/report/page/report_data.h"

namespace zeno::report {

RankMemory memory_of(const Ledger& ledger);
// Same machine type and same build on both sides, as for every exchange between ranks.
std::string pack_memory(const Ledger& ledger);
RankMemory unpack_memory(std::string_view bytes);

}  // namespace zeno::report
