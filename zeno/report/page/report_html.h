// report.html: a run on one page that needs nothing but a browser. Numbers are plain HTML tables; a script in
// the page draws curves, memory bars and the timeline of a step from JSON in the page. No network, light and
// dark, any width.
#pragma once

#include <string>

#include "zeno/base/file.h"
#include "zeno/report/page/report_data.h"

namespace zeno::report {

std::string report_html(const ReportData& data);
// Writes or replaces the file in one step.
void write_report(const Path& path, const ReportData& data);

}  // namespace zeno::report
