// The tests of Jinja (`x is defined`), by name.
#pragma once

#include <string_view>

#include "zeno/data/jinja/runtime.h"

namespace zeno::data::jinja {

using Test = bool (*)(Runtime& runtime, const Value& subject, const Arguments& arguments);

// Null: there is no such test.
Test find_test(std::string_view name);

}  // namespace zeno::data::jinja
