// The filters of Jinja that chat templates use, by name, with the `tojson` of transformers. Not there: those
// for web pages (urlize, xmlattr, striptags …) and those that are not functions of their input (random).
#pragma once

#include <string_view>
#include <vector>

#include "zeno/data/jinja/runtime.h"

namespace zeno::data::jinja {

using Filter = Value (*)(Runtime& runtime, const Value& subject, const Arguments& arguments);

// Null: there is no such filter.
Filter find_filter(std::string_view name);

struct NamedFilter {
  std::string_view name;
  Filter filter;
};
std::vector<NamedFilter> text_filters();      // over texts and numbers
std::vector<NamedFilter> json_filters();      // tojson, from_json
std::vector<NamedFilter> sequence_filters();  // over lists and dicts
std::vector<NamedFilter>
selection_filters();  // that take a filter, a test or an attribute: map, select, sort …

}  // namespace zeno::data::jinja
