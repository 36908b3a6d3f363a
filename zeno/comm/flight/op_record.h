// What a rank says about the operation it is about to run. Ranks compare these before any data moves, print
// them in errors and keep them in the flight recorder. Trivially copyable: records travel through shared
// memory and messages.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "zeno/base/dtype.h"
#include "zeno/comm/communicator.h"

namespace zeno::comm {

enum class OpKind : uint8_t {
  none,
  all_gather,
  reduce_scatter,
  all_reduce,
  broadcast,
  all_to_all,
  send,
  recv,
  barrier,
  exchange  // World::exchange
};
std::string_view name_of(OpKind kind);

struct OpRecord {
  uint64_t sequence = 0;  // per communicator, from 1
  OpKind kind = OpKind::none;
  DType dtype = DType::u8;
  int32_t root = -1;       // place in the group: of the root (broadcast), or of the other rank (send, recv)
  int32_t root_rank = -1;  // its rank in the world
  int32_t parts = 0;
  int64_t elements = 0;  // sum of the counts
  uint64_t counts_hash = 0;
  uint64_t unit_hash = 0;
  char unit[64] = {};  // cut if longer; the hash covers the whole name
};
static_assert(std::is_trivially_copyable_v<OpRecord>);

OpRecord make_record(OpKind kind, std::span<const Part> parts, DType dtype, int root, std::string_view unit);

// For an all_to_all with a count for each rank; the counts differ between ranks. Part.count is what is sent.
OpRecord make_exchange_record(std::span<const Part> parts, DType dtype, std::string_view unit);

// Whether the two records are of the same operation.
bool same_operation(const OpRecord& a, const OpRecord& b);

// "reduce_scatter of unit blocks.3"
std::string title(const OpRecord& record);
// "reduce_scatter of unit blocks.3 (2 parts, 4096 bf16 elements)"
std::string describe(const OpRecord& record);

// Says which ranks issued what if the records do not agree; records[i] is that of ranks[i].
std::optional<std::string> find_mismatch(std::span<const OpRecord> records, std::span<const int> ranks);

// "rank 3", "ranks 0, 2 and 5"
std::string list_ranks(std::span<const int> ranks);

}  // namespace zeno::comm
