#include "zeno/data/jinja/filters/filters.h"

#include <unordered_map>

namespace zeno::data::jinja {

Filter find_filter(std::string_view name) {
  static const auto all = [] {
    std::unordered_map<std::string_view, Filter> map;
    for (const auto& group : {text_filters(), json_filters(), sequence_filters(), selection_filters()}) {
      for (const NamedFilter& entry : group) map.emplace(entry.name, entry.filter);
    }
    return map;
  }();
  const auto at = all.find(name);
  return at == all.end() ? nullptr : at->second;
}

}  // namespace zeno::data::jinja
