#include "zeno/base/text_list.h"

#include <charconv>

#include "zeno/base/error.h"

namespace zeno {

// Each text behind its length: "3:abc".
std::string pack_texts(const std::vector<std::string>& texts) {
  std::string packed;
  for (const std::string& text : texts) packed += std::to_string(text.size()) + ':' + text;
  return packed;
}

std::vector<std::string> unpack_texts(std::string_view packed) {
  std::vector<std::string> texts;
  while (!packed.empty()) {
    size_t size = 0;
    const char* end = packed.data() + packed.size();
    const auto [colon, error] = std::from_chars(packed.data(), end, size);
    const size_t begin = size_t(colon - packed.data()) + 1;
    ensure(error == std::errc() && colon != end && *colon == ':' && size <= packed.size() - begin,
           "[texts] got {} bytes that are not a list of texts", packed.size());
    texts.emplace_back(packed.substr(begin, size));
    packed.remove_prefix(begin + size);
  }
  return texts;
}

}  // namespace zeno
