// Several texts as one, for channels that carry one: any bytes, line breaks and zeros included. Pure
// functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zeno {

std::string pack_texts(const std::vector<std::string>& texts);
// The inverse, of nothing else.
std::vector<std::string> unpack_texts(std::string_view packed);

}  // namespace zeno
