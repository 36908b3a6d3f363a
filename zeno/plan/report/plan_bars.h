// Stacked bars for a terminal: one block of a purpose's colour for each share of memory, or a pattern if
// there are no colours. Pure text.
#pragma once

#include <cstddef>
#include <string>

#include "zeno/plan/plan_rows.h"

namespace zeno::plan {

struct TextStyle {
  int width = 120;      // columns
  bool colour = false;  // escape codes of a terminal
};

// One tier of a row, `columns` wide for `full` bytes, padded with spaces. A bar beyond that ends with '›'; a
// limit (0: none) is a '│' where the bar is shorter.
std::string stacked_bar(const PlanBytes& bytes, Tier tier, double full, size_t limit, int columns,
                        bool colour);
// One purpose alone.
std::string plain_bar(Purpose purpose, size_t bytes, double full, int columns, bool colour);

// "█ parameters  ▓ gradients …", the purposes that a tier of these rows has, in lines of at most style.width.
std::string bar_legend(const std::vector<PlanRow>& rows, Tier tier, TextStyle style);

}  // namespace zeno::plan
