// Building a dataset cache: files are read in pieces, tokenised on all cores and written as the columns of a
// cache folder (cache.h), once per content.
//
// Safe at any moment: the cache exists when its manifest does, which is written last; what a killed build
// left behind is removed by the next one. Builders of one dataset in several threads or processes wait for
// each other.
#pragma once

#include <cstdint>
#include <functional>

#include "zeno/data/dataset/options.h"

namespace zeno::data {

struct BuildState {
  uint64_t bytes_read = 0, bytes_total = 0;
  int64_t samples = 0, tokens = 0;
};
// Called by the building thread every few megabytes and at the end; what it throws cancels the build.
using BuildProgress = std::function<void(const BuildState&)>;

// Makes sure that the cache of `spec` exists; true: it had to be built. `threads` 0: all cores. Token files
// need no cache and are not touched.
bool prepare_dataset(const DatasetSpec& spec, const BuildProgress& progress = {}, int threads = 0);

}  // namespace zeno::data
