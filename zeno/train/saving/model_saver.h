// Writes what a run has trained: the model as a Hugging Face folder, or its adapter as a PEFT folder.
// Collective: rank 0 writes, all ranks provide their shards; one piece is in memory at a time. A folder is
// replaced atomically or not at all.
#pragma once

#include <string>
#include <utility>

#include "zeno/base/file.h"
#include "zeno/model/config.h"
#include "zeno/model/layers.h"
#include "zeno/zero/engine.h"

namespace zeno::train {

class ModelSaver {
 public:
  // `source` is the folder the model came from: its tokenizer and templates are copied. References must
  // outlive the saver.
  ModelSaver(zero::Engine& engine, const model::ModelConfig& config, const model::Tuning& tuning, Path source,
             int rank)
      : engine_(engine), config_(config), tuning_(tuning), source_(std::move(source)), rank_(rank) {}

  // Returns the disk error of rank 0, the only rank that writes; empty if there was none.
  std::string save(const Path& folder);
  size_t bytes() const;  // of the weights that save() writes

 private:
  // Saves everything with the writer that `make` creates.
  template <class Make>
  std::string write(const Path& folder, const Make& make);

  zero::Engine& engine_;
  const model::ModelConfig& config_;
  const model::Tuning& tuning_;
  Path source_;
  int rank_;
};

}  // namespace zeno::train
