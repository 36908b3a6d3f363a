#include "zeno/page/html_text.h"

#include <nlohmann/json.hpp>

namespace zeno::page {
namespace {

// What JSON's writer makes of bad bytes: U+FFFD for each.
std::string valid_utf8(std::string_view text) {
  using Json = nlohmann::json;
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : valid_utf8(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        const bool control = uint8_t(c) < 0x20 && c != '\n' && c != '\t';
        out += control || c == 0x7f ? "\xef\xbf\xbd" : std::string(1, c);
    }
  }
  return out;
}

std::string json_in_html(std::string_view json) {
  std::string out;
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else if (c == '>') {
      out += "\\u003e";
    } else if (c == '&') {
      out += "\\u0026";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace zeno::page
