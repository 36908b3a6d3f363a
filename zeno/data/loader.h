// Turns the sequences of a table into micro-batches and deals them to ranks.
//
// Step s has the places s·G .. s·G+G-1 with G = micro_batch · grad_accum · ranks. They are dealt as logical
// micro-batches of consecutive places; rank r owns ids r·k .. r·k+k-1 with k = grad_accum. So a global batch
// consists of the same micro-batches for every number of ranks. Places of an epoch's last step that no
// sequence is left for are rows without anything to learn: every sample counts once per epoch, and all ranks
// have the same number of micro-batches.
//
// For evaluation, shuffle = false: steps 0 .. steps_per_epoch()-1 go through everything once, in order.
//
// Documents are kept apart: attention and positions do not cross them, and no token is trained to predict the
// start of the next one.
//
// step() is a pure function and may be called from any thread. Source and table must outlive the loader.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zeno/data/batch.h"
#include "zeno/data/dataset/sequences.h"
#include "zeno/data/sampler.h"
#include "zeno/data/source.h"

namespace zeno::data {

struct LoaderOptions {
  int64_t micro_batch = 1;  // B
  int64_t grad_accum = 1;   // k
  int rank = 0, ranks = 1;  // of those that see different sequences
  // Of those that share a sequence: each has a slice of its tokens, and the place of its documents in all of
  // it.
  int slice = 0, slices = 1;
  uint64_t seed = 0;
  bool shuffle = true;
  int64_t vocab_size = 0;  // 0: not checked; a damaged cache must not reach beyond the embedding
};

class Loader {
 public:
  Loader(const TokenSource& source, const SequenceTable& table, const LoaderOptions& options);

  int64_t sequences() const { return table_.sequences(); }
  int64_t samples_per_step() const { return per_step_; }
  int64_t steps_per_epoch() const { return sampler_.steps_per_epoch(); }
  // Passes over the data after this many steps.
  double epochs_after(int64_t steps) const { return double(steps) / double(steps_per_epoch()); }
  // The micro-batches of this rank for step `step`, counted from 0.
  std::vector<HostBatch> step(int64_t step) const;
  // Where the samples of this rank in a step come from, for messages: "a.jsonl:7, b.jsonl:12, … 30 more".
  std::string origins(int64_t step, size_t most = 8) const;

 private:
  struct Row;
  int64_t first_place(int64_t step, int64_t micro_batch) const;
  HostBatch micro_batch(int64_t first_place) const;
  void keep_slice(HostBatch& out) const;
  int64_t slice_len() const { return seq_len_ / options_.slices; }
  void fill_row(HostBatch& out, int64_t row, int64_t sequence, std::vector<Piece>& pieces) const;
  void fill_piece(const Row& row, int64_t at, const Piece& piece) const;
  void fill_padding(const Row& row, int64_t at) const;

  const TokenSource& source_;
  const SequenceTable& table_;
  LoaderOptions options_;
  int64_t seq_len_;
  int64_t per_step_;
  Sampler sampler_;
};

}  // namespace zeno::data
