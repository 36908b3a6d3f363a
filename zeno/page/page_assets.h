// The style of all pages and the drawing helpers of their scripts: the files of assets/.
#pragma once

#include <string_view>

namespace zeno::page {

extern const std::string_view kPageStyle, kDrawScript;

}  // namespace zeno::page
