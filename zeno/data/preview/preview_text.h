// Samples and counts for people at a terminal. With colours, trained text is green and the rest dim;
// otherwise trained text is in ⟦ ⟧. Line ends are visible and control characters harmless. Pure text.
#pragma once

#include <string>

#include "zeno/data/preview/preview.h"
#include "zeno/data/preview/preview_counts.h"

namespace zeno::data {

struct PreviewStyle {
  bool colour = false;    // escape codes of a terminal
  int64_t max_chars = 0;  // of a sample, the middle of long pieces being left out; 0: all of it
};

std::string sample_text(const PreviewSample& sample, PreviewStyle style);
std::string counts_text(const PreviewCounts& counts);

// "trained text is green" or "trained text is in ⟦ ⟧".
std::string style_note(PreviewStyle style);

}  // namespace zeno::data
