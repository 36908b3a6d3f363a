// The page of `zeno data --html`: counts, a histogram of lengths and samples with their trained text marked.
// It needs nothing but a browser.
#pragma once

#include <string>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/data/preview/preview.h"
#include "zeno/data/preview/preview_counts.h"

namespace zeno::report {

struct DataPage {
  std::string title;
  std::string command;  // that made it
  data::PreviewCounts counts;
  std::vector<data::PreviewSample> samples;
};

std::string data_page(const DataPage& page);
// Writes or replaces the file in one step.
void write_data_page(const Path& file, const DataPage& page);

}  // namespace zeno::report
