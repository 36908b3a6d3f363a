#include "zeno/plan/report/plan_bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace zeno::plan {
namespace {

struct Mark {
  std::string_view pattern;  // where there are no colours
  int colour;                // of the 256 of a terminal
};
// By purpose; hues as on the pages.
constexpr std::array<Mark, kPurposes> kMarks{{{"█", 25},
                                              {"▓", 68},
                                              {"▒", 61},
                                              {"░", 140},
                                              {"▤", 30},
                                              {"▥", 71},
                                              {"▨", 172},
                                              {"▧", 136},
                                              {"▦", 132},
                                              {"▩", 95},
                                              {"▪", 60},
                                              {"▫", 245}}};

std::string blocks(Purpose purpose, int columns, bool colour) {
  if (columns <= 0) return {};
  const Mark& mark = kMarks[size_t(purpose)];
  std::string text;
  for (int i = 0; i < columns; ++i) text += colour ? "█" : mark.pattern;
  return colour ? fmt::format("\x1b[38;5;{}m{}\x1b[0m", mark.colour, text) : text;
}

}  // namespace

std::string stacked_bar(const PlanBytes& bytes, Tier tier, double full, size_t limit, int columns,
                        bool colour) {
  const auto column = [&](double part) { return int(std::lround(part / full * columns)); };
  const bool cut = double(bytes.total(tier)) > full * (1 + 1e-9);
  const int room = cut ? columns - 1 : columns;
  std::string text;
  double sum = 0;
  int drawn = 0;
  for (int p = 0; p < kPurposes; ++p) {
    sum += double(bytes.at(tier, Purpose(p)));
    const int end = std::clamp(column(sum), drawn, room);
    text += blocks(Purpose(p), end - drawn, colour);
    drawn = end;
  }
  if (cut) return text + "›";
  const int at = limit > 0 ? column(double(limit)) : -1;
  for (; drawn < columns; ++drawn) text += drawn == at ? "│" : " ";
  return text;
}

std::string plain_bar(Purpose purpose, size_t bytes, double full, int columns, bool colour) {
  return blocks(purpose, int(std::lround(double(bytes) / full * columns)), colour);
}

std::string bar_legend(const std::vector<PlanRow>& rows, Tier tier, TextStyle style) {
  std::string text, line;
  int columns = 0;
  for (int p = 0; p < kPurposes; ++p) {
    const auto has = [&](const PlanRow& row) { return row.bytes.at(tier, Purpose(p)) > 0; };
    if (std::ranges::none_of(rows, has)) continue;
    const std::string_view name = name_of(Purpose(p));
    const int width = int(name.size()) + 4;
    if (columns + width > style.width) {
      text += line + "\n";
      line.clear();
      columns = 0;
    }
    line += fmt::format("{} {}  ", blocks(Purpose(p), 1, style.colour), name);
    columns += width;
  }
  return text + line + "\n";
}

}  // namespace zeno::plan
