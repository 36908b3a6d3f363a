// The numbers of the report as HTML, for readers and for browsers without script. Every text of the user is
// escaped.
#pragma once

#include <string>

#include "zeno/report/page/report_data.h"

namespace zeno::report {

std::string summary_tiles(const ReportData& data);
std::string curve_table(const ReportData& data);  // some steps, evenly spread
std::string eval_table(const ReportData& data);
std::string memory_table(const ReportData& data, Tier tier);
std::string timeline_table(const Timeline& timeline);
std::string event_table(const ReportData& data);
std::string setting_table(const ReportData& data);

}  // namespace zeno::report
