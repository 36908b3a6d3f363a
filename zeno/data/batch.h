// The tokens of one micro-batch on the host, ready to be copied into nn::Batch.
#pragma once

#include <cstdint>
#include <vector>

namespace zeno::data {

// B sequences of T tokens, R = B·T rows. Where ranks share sequences, T is the tokens of this one.
struct HostBatch {
  int64_t batch = 0, seq = 0;       // B, T
  std::vector<int32_t> tokens;      // [R]
  std::vector<int32_t> targets;     // [R]; the next token, -1: not trained
  std::vector<int32_t> positions;   // [R]; counted from the start of the document in this sequence
  std::vector<int32_t> doc_start;   // [B · whole sequence]; index in it where the token's document starts
  std::vector<int32_t> valid_rows;  // rows with a target, ascending
  int64_t filled = 0;               // rows that hold a token; the others are padding

  bool operator==(const HostBatch&) const = default;
};

}  // namespace zeno::data
