#include "zeno/report/json_text.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

namespace zeno::report {

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];  // the longest is 24 characters
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end);
}

std::string json_string(std::string_view text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace zeno::report
