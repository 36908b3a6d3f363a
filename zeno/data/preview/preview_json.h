// Samples and counts for programs. Texts that are not UTF-8 get U+FFFD in place of the bad bytes.
#pragma once

#include <string>

#include "zeno/data/preview/preview.h"
#include "zeno/data/preview/preview_counts.h"

namespace zeno::data {

// {"origin", "tokens", "trained_tokens", …, "pieces": [{"text", "trained"}, …]}
std::string sample_json(const PreviewSample& sample);
std::string counts_json(const PreviewCounts& counts);

}  // namespace zeno::data
