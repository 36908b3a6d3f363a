// The numbers of the report's charts, as one JSON document that the page's script reads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "zeno/report/page/report_data.h"

namespace zeno::report {

// A figure of the page: its place must be there for the script to draw into.
struct ReportFigure {
  std::string id, title;
  bool wide = false;
};
// Curves that this run can show, in order.
std::vector<ReportFigure> report_curves(const ReportData& data);
// Tiers in which some rank keeps something.
std::vector<Tier> tiers_in_use(const ReportData& data);

std::string report_json(const ReportData& data);

}  // namespace zeno::report
