#include "zeno/data/tokenizer/byte_level.h"

#include "zeno/base/utf8.h"

namespace zeno::data::tokenizer {
namespace {

constexpr char32_t kFirstStandIn = 0x100, kNamesEnd = 0x200;

std::array<std::string, 256> make_byte_names() {
  std::array<std::string, 256> names;
  char32_t next = kFirstStandIn;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    append_utf8(names[byte], printable ? byte : next++);
  }
  return names;
}

std::array<int16_t, kNamesEnd> make_bytes() {
  std::array<int16_t, kNamesEnd> bytes;
  bytes.fill(-1);
  for (size_t byte = 0; byte < 256; ++byte) bytes[decode_char(byte_names()[byte], 0).code] = int16_t(byte);
  return bytes;
}

}  // namespace

const std::array<std::string, 256>& byte_names() {
  static const std::array<std::string, 256> names = make_byte_names();
  return names;
}

std::optional<std::string> bytes_of_names(std::string_view text) {
  static const std::array<int16_t, kNamesEnd> byte_of = make_bytes();
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_char(text, at);
    if (c.code >= kNamesEnd || byte_of[c.code] < 0) return std::nullopt;
    bytes += char(byte_of[c.code]);
    at += c.bytes;
  }
  return bytes;
}

}  // namespace zeno::data::tokenizer
