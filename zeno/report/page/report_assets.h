// The script of the report page: the files of assets/, made into this program by CMake.
#pragma once

#include <string_view>

namespace zeno::report {

extern const std::string_view kReportScript;

}  // namespace zeno::report
