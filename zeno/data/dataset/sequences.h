// Which samples make up each training sequence of T tokens. Decided once, from the lengths of the samples,
// the options and the seed; every rank comes to the same table.
//
// Costs 8 bytes of memory per sample and 4 per sequence (wrapped: nothing, or 4 per window when a part is
// held out). Immutable; safe from any thread. The source must outlive the table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zeno/data/dataset/options.h"
#include "zeno/data/source.h"

namespace zeno::data {

enum class SamplePart { all, train, held_out };

struct PackOptions {
  int64_t seq_len = 0;  // T
  Packing packing = Packing::automatic;
  TooLong too_long = TooLong::truncate;
  uint64_t seed = 0;
  bool shuffle = true;  // samples of equal length are combined at random
  // Below 1: this part of the samples is held out, from 1 on: so many; chosen by (seed, index). Wrapped
  // streams hold out windows instead.
  double hold_out = 0;
  SamplePart part = SamplePart::all;
  int64_t max_samples = 0;  // of the part; 0: all
};

struct PackReport {
  Packing packing = Packing::best_fit;
  int64_t seq_len = 0;
  int64_t samples = 0;  // pieces that made it into sequences (wrapped: documents of the stream)
  int64_t sequences = 0;
  int64_t tokens = 0;            // rows that hold one; the rest of sequences · seq_len is padding
  int64_t cut = 0;               // samples that were too long: truncated, split
  int64_t dropped = 0;           // … or dropped
  int64_t nothing_to_learn = 0;  // of what was left after cutting
  double fill() const { return double(tokens) / double(sequences * seq_len); }
  // "packed 52,002 samples into 3,120 sequences of 2,048, 99.1 % filled; 12 too long: cut"
  std::string text() const;
};

// A stretch of the stream that lies side by side in a sequence.
struct Piece {
  int64_t begin = 0, length = 0;
  int64_t document = 0;  // of its first token; only wrapped pieces reach into further ones
};

class SequenceTable {
 public:
  SequenceTable(const TokenSource& source, const PackOptions& options);

  int64_t sequences() const { return report_.sequences; }
  int64_t seq_len() const { return options_.seq_len; }
  const PackReport& report() const { return report_; }
  // Is the token after a piece the target of its last one? So it is where samples are cut without loss.
  bool targets_continue() const;
  // Replaces `out` by the pieces of a sequence, in order.
  void pieces(int64_t sequence, std::vector<Piece>& out) const;
  size_t host_bytes() const;

 private:
  struct Slot {
    uint32_t document = 0;
    uint32_t part = 0;  // too_long = split: which stretch of T tokens
  };
  [[noreturn]] void fail_empty() const;
  void cut_windows();
  void collect_slots();
  void add_document(int64_t document);
  void pack_slots();
  Piece piece_of(Slot slot) const;
  bool has_target(const Piece& piece) const;

  const TokenSource& source_;
  PackOptions options_;
  PackReport report_;
  std::vector<Slot> slots_;        // by sequence
  std::vector<uint32_t> starts_;   // of sequences in slots_; empty: one slot each
  std::vector<uint32_t> windows_;  // wrapped with a part held out: the windows that are left
};

}  // namespace zeno::data
