// Python's ways to fill values into a text: the % operator, str.format and strftime.
#pragma once

#include <string>

#include "zeno/data/jinja/runtime.h"

namespace zeno::data::jinja {

// format % values: `values` is a tuple, a dict for %(name)s, or one value. Markup escapes them.
Value percent_format(Runtime& runtime, const Value& format, const Value& values);
// format.format(*arguments)
Value brace_format(Runtime& runtime, const TracedText& format, const Arguments& arguments);
// `seconds` since 1970, UTC, with C's names of days and months.
std::string time_text(const std::string& format, int64_t seconds);

}  // namespace zeno::data::jinja
