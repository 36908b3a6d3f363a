// Numbers as people write them, with a unit: "7.5B" parameters, "80GB" of memory. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace zeno {

// "7.5e9", "7.5B", "350M", "1T", "20k". Empty if it is not a positive number.
std::optional<double> parse_count(std::string_view text);

// "80GB" (10^9), "80GiB" (2^30), "1.5 TB", "512MB". The unit is required: 80 alone could be anything. Empty
// if it is not a size from 1 byte to 2^60.
std::optional<double> parse_bytes(std::string_view text);

// "7.5 billion", "350 million", "1 trillion"; below a million the number itself.
std::string count_in_words(double count);

// "950", "12,345", "1,200,000".
std::string format_count(int64_t count);
// A share of 1 as "61.5 %".
std::string format_percent(double share);

}  // namespace zeno
