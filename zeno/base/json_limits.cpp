#include "zeno/base/json_limits.h"

#include <vector>

#include "zeno/base/quantity.h"

namespace zeno {
namespace {

// Where the string that begins at `at` has its closing quote, or the end of the text.
size_t end_of_string(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at;
}

}  // namespace

std::string json_excess(std::string_view text, const JsonLimits& limits) {
  struct Open {
    char bracket;
    size_t members = 1;
  };
  std::vector<Open> open;
  size_t values = 1, nodes = 0;  // values: at least as many as there are, an empty list counts twice
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      at = end_of_string(text, at);
      ++nodes;
    } else if (c == '{' || c == '[') {
      if (open.size() == limits.depth) return fmt::format("nested deeper than {} levels", limits.depth);
      open.push_back({c});
      ++values;
      ++nodes;
    } else if (c == '}' || c == ']') {
      if (open.empty()) break;
      open.pop_back();
    } else if (c == ',') {
      ++values;
      if (!open.empty() && ++open.back().members > limits.keys && open.back().bracket == '{')
        return fmt::format("an object has more than {} keys", format_count(int64_t(limits.keys)));
    }
    if (values > limits.values)
      return fmt::format("it has more than {} values", format_count(int64_t(limits.values)));
    if (nodes > limits.nodes)
      return fmt::format("it has more than {} texts, lists and objects", format_count(int64_t(limits.nodes)));
  }
  return "";
}

void check_json_limits(std::string_view text, std::string_view where, const JsonLimits& limits,
                       ErrorKind kind) {
  const std::string excess = json_excess(text, limits);
  require(excess.empty(), kind, "{}: {}", where, excess);
}

}  // namespace zeno
