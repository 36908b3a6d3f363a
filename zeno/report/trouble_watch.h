// Watches the steps of a run for what holds them up and says so: the troubles of this engine and config, in
// words. Rank 0 has one; the engine outlives it; one thread.
#pragma once

#include <string>
#include <vector>

#include "zeno/report/trouble_text.h"
#include "zeno/zero/engine.h"

namespace zeno::report {

class TroubleWatch {
 public:
  // `hosts`: the name of each rank's.
  TroubleWatch(const zero::Engine& engine, const config::TrainConfig& config, std::vector<std::string> hosts);

  // The next step. A line for each trouble to report now.
  std::vector<std::string> look(const Observation& step);
  // How the run went and what would make it better, in a paragraph. `memory_limit`: of a rank's device.
  std::string advice(size_t memory_limit) const;

 private:
  std::string text_of(const Trouble& trouble) const;
  std::string place_of(TroubleKind kind) const;

  const zero::Engine& engine_;
  TroubleSetting setting_;
  Troubles troubles_;
};

}  // namespace zeno::report
