#include "zeno/comm/flight/op_record.h"

#include <algorithm>
#include <vector>

namespace zeno::comm {
namespace {

// FNV-1a: small, stable across processes and machines.
uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed = 0xcbf29ce484222325u) {
  const auto* p = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) seed = (seed ^ p[i]) * 0x100000001b3u;
  return seed;
}

}  // namespace

std::string_view name_of(OpKind kind) {
  switch (kind) {
    case OpKind::none:
      return "nothing";
    case OpKind::all_gather:
      return "all_gather";
    case OpKind::reduce_scatter:
      return "reduce_scatter";
    case OpKind::all_reduce:
      return "all_reduce";
    case OpKind::broadcast:
      return "broadcast";
    case OpKind::all_to_all:
      return "all_to_all";
    case OpKind::send:
      return "send";
    case OpKind::recv:
      return "recv";
    case OpKind::barrier:
      return "barrier";
    case OpKind::exchange:
      return "exchange";
  }
  return "?";
}

OpRecord make_record(OpKind kind, std::span<const Part> parts, DType dtype, int root, std::string_view unit) {
  OpRecord record;
  record.kind = kind;
  record.dtype = dtype;
  record.root = record.root_rank = root;
  record.parts = int32_t(parts.size());
  record.counts_hash = hash_bytes(nullptr, 0);
  for (const Part& part : parts) {
    record.elements += part.count;
    record.counts_hash = hash_bytes(&part.count, sizeof part.count, record.counts_hash);
  }
  record.unit_hash = hash_bytes(unit.data(), unit.size());
  unit.copy(record.unit, sizeof record.unit - 1);
  return record;
}

OpRecord make_exchange_record(std::span<const Part> parts, DType dtype, std::string_view unit) {
  OpRecord record = make_record(OpKind::all_to_all, parts, dtype, -1, unit);
  constexpr std::string_view kUnequal = "counts by rank";  // distinct from equal counts
  record.counts_hash = hash_bytes(kUnequal.data(), kUnequal.size());
  return record;
}

bool same_operation(const OpRecord& a, const OpRecord& b) {
  return a.sequence == b.sequence && a.kind == b.kind && a.dtype == b.dtype && a.root == b.root &&
         a.parts == b.parts && a.counts_hash == b.counts_hash && a.unit_hash == b.unit_hash;
}

std::string title(const OpRecord& record) {
  if (record.kind == OpKind::none) return "nothing";
  const std::string peer = record.kind == OpKind::send   ? fmt::format(" to rank {}", record.root_rank)
                           : record.kind == OpKind::recv ? fmt::format(" from rank {}", record.root_rank)
                                                         : "";
  if (record.kind == OpKind::exchange) return fmt::format("exchange of {}", record.unit);
  return fmt::format("{}{} of unit {}", name_of(record.kind), peer, record.unit);
}

std::string describe(const OpRecord& record) {
  if (record.kind == OpKind::none || record.kind == OpKind::barrier || record.kind == OpKind::exchange) {
    return title(record);
  }
  const std::string root =
      record.kind == OpKind::broadcast ? fmt::format(" from rank {}", record.root_rank) : "";
  return fmt::format("{}{} ({} part{}, {} {} elements)", title(record), root, record.parts,
                     record.parts == 1 ? "" : "s", record.elements, name_of(record.dtype));
}

std::optional<std::string> find_mismatch(std::span<const OpRecord> records, std::span<const int> ranks) {
  std::vector<bool> told(records.size());
  std::string text;
  int groups = 0;
  for (size_t r = 0; r < records.size(); ++r) {
    if (told[r]) continue;
    std::vector<int> alike;
    for (size_t q = r; q < records.size(); ++q) {
      if (told[q] || !same_operation(records[r], records[q])) continue;
      told[q] = true;
      alike.push_back(ranks[q]);
    }
    text += fmt::format("{}{} issued {} as operation {}", groups == 0 ? "" : ", ", list_ranks(alike),
                        describe(records[r]), records[r].sequence);
    ++groups;
  }
  if (groups <= 1) return std::nullopt;
  return text;
}

std::string list_ranks(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace zeno::comm
