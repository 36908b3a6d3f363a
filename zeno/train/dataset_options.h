// From a training config to the data of a run: which files are read, how they become samples and sequences,
// and the loaders of one rank.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "zeno/comm/world.h"
#include "zeno/config/config.h"
#include "zeno/data/dataset/prepare.h"
#include "zeno/data/dataset/sequences.h"
#include "zeno/data/loader.h"
#include "zeno/data/source.h"

namespace zeno::train {

// The dataset of --data, and of --eval-data where it is given.
data::DatasetSpec training_spec(const config::TrainConfig& config, int64_t vocab_size);
std::optional<data::DatasetSpec> evaluation_spec(const config::TrainConfig& config, int64_t vocab_size);

// How its samples become sequences, without those held out for evaluation.
data::PackOptions training_pack(const config::TrainConfig& config, int64_t seq_len);
// Whether the data is generated, so that there are no files.
bool is_generated(const config::TrainConfig& config);

struct DatasetSpecs {
  data::DatasetSpec training;
  std::optional<data::DatasetSpec> evaluation;
};

// Samples, their packing and, after deal(), the loaders of this rank. Loaders point to the other members;
// these are on the heap, so RunData is movable. Immutable after deal(): loaders may be used from any thread.
class RunData {
 public:
  int64_t train_sequences() const { return train_table_->sequences(); }
  // Divides the sequences into the micro-batches of the config, which must be resolved.
  void deal(const config::TrainConfig& config, const comm::World& world);

  // Call deal() first.
  const data::Loader& train() const { return *train_; }
  const data::Loader* evaluation() const { return evaluation_ ? &*evaluation_ : nullptr; }  // null: none
  const data::TokenSource& source() const { return *source_; }
  const data::PackReport& train_report() const { return train_table_->report(); }
  // Bytes of host memory held (mapped files not counted).
  size_t host_bytes() const;

 private:
  friend RunData open_run_data(const config::TrainConfig&, int64_t, int64_t, comm::World&,
                               const data::BuildProgress&);
  // The part that each rank does on its own.
  void load(const config::TrainConfig& config, const DatasetSpecs& specs, int64_t seq_len);

  std::unique_ptr<data::TokenSource> source_, evaluation_source_;
  std::unique_ptr<data::SequenceTable> train_table_, evaluation_table_;
  std::unique_ptr<data::Loader> train_, evaluation_;
  int64_t vocab_size_ = 0;
};

// Collective. One rank per host (and per path, if ranks name different copies) builds what is not in the
// cache while the others wait; then every rank maps it. The thread that builds calls `progress`, which may
// throw to cancel.
RunData open_run_data(const config::TrainConfig& config, int64_t vocab_size, int64_t seq_len,
                      comm::World& world, const data::BuildProgress& progress = {});

}  // namespace zeno::train
