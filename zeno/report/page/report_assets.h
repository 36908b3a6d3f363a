// The script of the report page: the files of report_page/, made into this program by CMake.
#pragma once

#include <string_view>

namespace zeno::train {

extern const std::string_view kReportScript;

}  // namespace zeno::train
