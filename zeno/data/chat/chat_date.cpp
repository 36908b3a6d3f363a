#include "zeno/data/chat/chat_date.h"

#include <chrono>
#include <regex>

#include "zeno/base/error.h"

namespace zeno::data {

int64_t parse_chat_date(const std::string& text) {
  using namespace std::chrono;
  std::smatch parts;
  const bool shaped = std::regex_match(text, parts, std::regex("([0-9]{4})-([0-9]{2})-([0-9]{2})"));
  const auto number = [&](size_t i) { return shaped ? std::stoi(parts[i]) : 0; };
  const year_month_day date{year(number(1)), month(unsigned(number(2))), day(unsigned(number(3)))};
  require(shaped && date.ok(), ErrorKind::usage,
          "[chat] --chat-date: got '{}', expected a day as YYYY-MM-DD, such as 2025-01-31", text);
  return duration_cast<seconds>(sys_days(date).time_since_epoch()).count();
}

}  // namespace zeno::data
