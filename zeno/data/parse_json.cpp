#include "zeno/data/parse_json.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"

namespace zeno::data {
namespace {

// What stands between two marks of the library's message; empty: one of them is missing.
std::string between(std::string_view text, std::string_view from, std::string_view to) {
  const size_t begin = text.find(from);
  if (begin == std::string_view::npos) return "";
  text.remove_prefix(begin + from.size());
  return std::string(text.substr(0, text.find(to)));
}

// "line 3, column 7", or "column 7" of a text of one line. Columns count bytes from 1.
std::string place_of(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, byte);
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  const std::string column = fmt::format("column {}", byte - line_start + 1);
  if (text.find('\n') == std::string_view::npos) return column;
  return fmt::format("line {} of the record, {}", std::ranges::count(before, '\n') + 1, column);
}

[[noreturn]] void fail_parse(std::string_view text, const nlohmann::json::parse_error& error) {
  const std::string_view what = error.what();
  size_t byte = std::min(error.byte > 0 ? error.byte - 1 : 0, text.size());
  const std::string expected = between(what, "; expected ", ";");
  const std::string hope = expected.empty() ? "" : ", expected " + expected;
  const bool ends = what.find("unexpected end of input") != std::string_view::npos ||
                    what.find("missing closing quote") != std::string_view::npos;
  require(!ends, ErrorKind::data,
          "not JSON: it ends in the middle of a value, at {}{}; is the file complete?",
          place_of(text, text.size()), hope);
  std::string reason = between(what, " - ", ";");
  // The library stands at the end of a text; its beginning says more.
  if (reason == "unexpected string literal") byte = std::min(byte, text.substr(0, byte).rfind('"'));
  if (reason == "invalid literal") {
    while (byte > 0 && std::isalpha(static_cast<unsigned char>(text[byte - 1])) != 0) --byte;
  }
  // Other reasons are the library's advice on escapes.
  const bool wrong_token = reason.starts_with("unexpected") || reason == "invalid literal";
  if (wrong_token) reason = fmt::format("got '{}'", shortened(text.substr(byte), 20));
  fail(ErrorKind::data, "not JSON at {}: {}{}", place_of(text, byte), shortened(reason, 120), hope);
}

// Builds the value from what the library's parser reads. The library's own builder copies each text.
class TreeBuilder {
 public:
  Json take() && { return std::move(root_); }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t& value) { return add(std::move(value)); }
  bool start_object(size_t) { return open(Json::value_t::object); }
  bool end_object() { return close(); }
  bool start_array(size_t) { return open(Json::value_t::array); }
  bool end_array() { return close(); }
  // Of a key that comes twice the last value counts.
  bool key(std::string& name) {
    member_ = &(*open_.back())[std::move(name)];
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) {
    if (const auto* syntax = dynamic_cast<const Json::parse_error*>(&error)) throw *syntax;
    throw dynamic_cast<const Json::out_of_range&>(error);
  }

 private:
  template <class T>
  bool add(T&& value) {
    place() = std::forward<T>(value);
    return true;
  }
  bool open(Json::value_t type) {
    Json& value = place();
    value = type;
    open_.push_back(&value);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  // Where the next value goes. A value moves only while its list grows, and then none inside it is open.
  Json& place() {
    if (open_.empty()) return root_;
    if (open_.back()->is_object()) return *member_;
    return open_.back()->get_ref<Json::array_t&>().emplace_back();
  }

  Json root_;
  std::vector<Json*> open_;  // outermost first
  Json* member_ = nullptr;   // of the innermost object
};

}  // namespace

Json parse_json(std::string_view text) {
  const std::string excess = json_excess(text, kRecordLimits);
  require(excess.empty(), ErrorKind::data, "{}", excess);
  try {
    TreeBuilder builder;
    Json::sax_parse(text, &builder);
    return std::move(builder).take();
  } catch (const nlohmann::json::parse_error& error) {
    fail_parse(text, error);
  } catch (const nlohmann::json::out_of_range&) {
    fail(ErrorKind::data, "has a number that is too large, expected less than 1.8e308");
  }
}

}  // namespace zeno::data
