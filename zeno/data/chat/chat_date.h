// The date that strftime_now gives to chat templates, as users write it.
#pragma once

#include <cstdint>
#include <string>

namespace zeno::data {

// "2025-11-15" to seconds since 1970 (UTC, the beginning of that day). Error(usage) names --chat-date.
int64_t parse_chat_date(const std::string& text);

}  // namespace zeno::data
