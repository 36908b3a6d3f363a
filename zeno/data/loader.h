// Cuts a token source into training sequences and deals them to ranks.
//
// The stream is cut into windows of T tokens; a window's targets are the same tokens one further on. Step s
// takes the samples s·G .. s·G+G-1 with G = micro_batch · grad_accum · world. They are dealt as logical
// micro-batches of consecutive samples; rank r owns ids r·k .. r·k+k-1 with k = grad_accum. So a global batch
// consists of the same micro-batches at every world size.
//
// step() is a pure function and may be called from any thread. The source must outlive the loader.
#pragma once

#include <cstdint>
#include <vector>

#include "zeno/data/batch.h"
#include "zeno/data/sampler.h"
#include "zeno/data/source.h"

namespace zeno::data {

struct LoaderOptions {
  int64_t seq_len = 0;      // T
  int64_t micro_batch = 1;  // B
  int64_t grad_accum = 1;   // k
  int rank = 0, world = 1;
  uint64_t seed = 0;
  bool shuffle = true;
  // Attention and positions do not cross documents, and nobody learns to predict the start of the next one.
  bool separate_documents = true;
};

class Loader {
 public:
  Loader(const TokenSource& source, const LoaderOptions& options);

  int64_t sequences() const { return sequences_; }
  int64_t samples_per_step() const { return per_step_; }
  int64_t steps_per_epoch() const { return sampler_.steps_per_epoch(); }
  // The micro-batches of this rank for optimizer step `step`, counted from 0.
  std::vector<HostBatch> step(int64_t step) const;

 private:
  HostBatch micro_batch(int64_t first_sample) const;
  void fill_row(HostBatch& out, int64_t row, int64_t sequence) const;

  const TokenSource& source_;
  LoaderOptions options_;
  int64_t sequences_;
  int64_t per_step_;
  Sampler sampler_;
};

}  // namespace zeno::data
