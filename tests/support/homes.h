// Where a run keeps its optimizer states and parameters: every combination of tiers.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/support/train_run.h"

namespace zeno::test {

struct Homes {
  Tier optimizer, params;
  bool far;  // the CPU's device memory is reached by copies only, as a GPU's
  double ratio = 1;
  double cpu_share = 0;

  std::string text() const {
    return fmt::format("optimizer {} ({:.0f} %, {:.0f} % by the CPU), parameters {}{}", name_of(optimizer),
                       ratio * 100, cpu_share * 100, name_of(params), far ? ", far host" : "");
  }
  void set(RunSpec& spec, const Path& folder) const {
    zero::Offload& offload = spec.policy.offload;
    offload.optimizer = optimizer;
    offload.params = params;
    offload.far_host = far;
    offload.ratio = ratio;
    offload.cpu_share = cpu_share;
    offload.chunk = 1024;
    offload.device_window = 4096;
    offload.host_window = 3000;
    offload.host_states = 2500;  // of those that go to disk, a few stay on the way
    offload.host_params = 6000;
    spec.disk.folders = {folder};
  }
};

inline std::vector<Homes> all_homes() {
  std::vector<Homes> homes;
  for (bool far : {false, true}) {
    for (Tier optimizer : kTiers) {
      for (Tier params : kTiers) {
        homes.push_back({optimizer, params, far});
        if (optimizer != Tier::device) homes.push_back({optimizer, params, far, 0.6});
        if (optimizer != Tier::device && far) homes.push_back({optimizer, params, far, 1, 0.5});
      }
    }
  }
  return homes;
}

}  // namespace zeno::test
