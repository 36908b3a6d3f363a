#include "zeno/base/utf8.h"

#include <algorithm>
#include <cstring>

namespace zeno {

Utf8Char decode_multibyte(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? uint8_t(text[at + i]) : uint8_t(0); };
  const auto more = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const uint8_t first = byte(0);
  constexpr Utf8Char kBad = {kReplacementCharacter, 1, false};
  if (first < 0xc2 || first > 0xf4 || !more(1)) return kBad;
  if (first < 0xe0) return {char32_t((first & 0x1f) << 6 | (byte(1) & 0x3f)), 2, true};
  if (first < 0xf0) {
    const auto code = char32_t((first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f));
    if (!more(2) || code < 0x800 || (code >= 0xd800 && code < 0xe000)) return kBad;
    return {code, 3, true};
  }
  const auto code =
      char32_t((first & 7) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f));
  if (!more(2) || !more(3) || code < 0x10000 || code > 0x10ffff) return kBad;
  return {code, 4, true};
}

Utf8Char decode_char_before(std::string_view text, size_t end) {
  for (size_t length = 1; length <= std::min<size_t>(end, 4); ++length) {
    const Utf8Char c = decode_char(text.substr(0, end), end - length);
    if (c.valid && c.bytes == length) return c;
  }
  return {kReplacementCharacter, 1, false};
}

void append_utf8(std::string& text, char32_t code) {
  if (code < 0x80) {
    text += char(code);
    return;
  }
  if (code < 0x800) {
    text += char(0xc0 | (code >> 6));
  } else {
    if (code < 0x10000) {
      text += char(0xe0 | (code >> 12));
    } else {
      text += char(0xf0 | (code >> 18));
      text += char(0x80 | ((code >> 12) & 0x3f));
    }
    text += char(0x80 | ((code >> 6) & 0x3f));
  }
  text += char(0x80 | (code & 0x3f));
}

size_t valid_utf8_run(std::string_view text, size_t at) {
  const size_t start = at;
  while (at < text.size()) {
    uint64_t eight;
    if (at + 8 <= text.size()) {
      std::memcpy(&eight, text.data() + at, 8);
      if ((eight & 0x8080808080808080ull) == 0) {
        at += 8;
        continue;
      }
    }
    const Utf8Char c = decode_char(text, at);
    if (!c.valid) break;
    at += c.bytes;
  }
  return at - start;
}

bool is_valid_utf8(std::string_view text) { return valid_utf8_run(text, 0) == text.size(); }

std::string shortened(std::string_view text, size_t bytes) {
  size_t end = std::min(text.size(), bytes);
  while (end > 0 && end < text.size() && (uint8_t(text[end]) & 0xc0) == 0x80) --end;
  std::string out(text.substr(0, end));
  std::ranges::replace_if(
      out, [](char c) { return uint8_t(c) < 0x20 || c == 0x7f; }, ' ');
  return end < text.size() ? out + "…" : out;
}

}  // namespace zeno
