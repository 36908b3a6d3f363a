#include "zeno/base/python_json.h"

#include <string_view>

namespace zeno {
namespace {

constexpr std::string_view kNames[] = {"-Infinity", "Infinity", "NaN"};
std::string quoted(std::string_view name) { return "\"python:" + std::string(name) + '"'; }

}  // namespace

std::string quote_special_numbers(std::string text) {
  if (text.find("Infinity") == std::string::npos && text.find("NaN") == std::string::npos) return text;
  std::string out;
  bool in_string = false;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = std::string_view(text).substr(at);
    size_t length = in_string && rest[0] == '\\' && rest.size() > 1 ? 2 : 1;
    if (rest[0] == '"') in_string = !in_string;
    std::string piece(rest.substr(0, length));
    for (const std::string_view name : kNames) {
      if (in_string || !rest.starts_with(name)) continue;
      piece = quoted(name);
      length = name.size();
      break;
    }
    out += piece;
    at += length;
  }
  return out;
}

std::string unquote_special_numbers(const std::string& text) {
  constexpr std::string_view kMark = "\"python:";
  std::string out;
  size_t done = 0;
  for (size_t at = 0; (at = text.find(kMark, at)) != std::string::npos; at += kMark.size()) {
    for (const std::string_view name : kNames) {
      const std::string from = quoted(name);
      if (text.compare(at, from.size(), from) != 0) continue;
      out.append(text, done, at - done).append(name);
      done = at + from.size();
    }
  }
  return out.append(text, done);
}

}  // namespace zeno
