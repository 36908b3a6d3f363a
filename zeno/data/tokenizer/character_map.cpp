// SentencePiece's "precompiled_charsmap": a double-array trie over the bytes to replace, and the texts to put
// in their place. The trie's units are as Darts-clone stores them.
#include <cstring>
#include <optional>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"
#include "zeno/data/tokenizer/json_node.h"
#include "zeno/data/tokenizer/normalize/normalizer.h"
#include "zeno/data/tokenizer/regex.h"

namespace zeno::data::tokenizer {
namespace {

// PCRE2 10.42 ends a cluster behind a flag's letter although marks follow.
constexpr std::string_view kGrapheme =
    R"([\x{1F1E6}-\x{1F1FF}]{1,2}[\p{Grapheme_Extend}\p{Emoji_Modifier}\p{Mc}\x{200d}]*|\X)";
constexpr size_t kMaxGraphemeBytes = 6;  // longer ones are looked up character by character

std::string decode_base64(const JsonNode& node) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : node.string()) {
    uint32_t value = 0;
    if (c >= 'A' && c <= 'Z')
      value = uint32_t(c - 'A');
    else if (c >= 'a' && c <= 'z')
      value = uint32_t(c - 'a' + 26);
    else if (c >= '0' && c <= '9')
      value = uint32_t(c - '0' + 52);
    else if (c == '+')
      value = 62;
    else if (c == '/')
      value = 63;
    else if (c == '=')
      continue;
    else
      node.refuse("a character outside base64", "base64 text");
    bits = bits << 6 | value;
    if (++count % 4 == 0) {
      bytes += {char(bits >> 16), char(bits >> 8), char(bits)};
      bits = 0;
    }
  }
  if (count % 4 == 2) bytes += char(bits >> 4);
  if (count % 4 == 3) bytes += {char(bits >> 10), char(bits >> 2)};
  return bytes;
}

class CharacterMap final : public Normalizer {
 public:
  explicit CharacterMap(const JsonNode& node) : grapheme_(Regex::native(kGrapheme)) {
    const std::string bytes = decode_base64(node);
    uint32_t trie_bytes = 0;
    if (bytes.size() >= 4) std::memcpy(&trie_bytes, bytes.data(), 4);
    if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > bytes.size() - 4) {
      node.refuse(fmt::format("a map of {} bytes with a trie of {}", bytes.size(), trie_bytes),
                  "a trie and its texts");
    }
    units_.resize(trie_bytes / 4);
    std::memcpy(units_.data(), bytes.data() + 4, trie_bytes);
    texts_ = bytes.substr(4 + trie_bytes);
    if (!is_valid_utf8(texts_)) node.refuse("texts that are not UTF-8", "UTF-8");
  }

  void apply(AlignedText& text) const override {
    const std::string_view in = text.text;
    Rewriter out(text);
    for (size_t at = 0; at < in.size();) {
      const auto match = grapheme_.find(in, at);
      const size_t end = match ? match->end : in.size();
      const std::string_view grapheme = in.substr(at, end - at);
      const auto whole = grapheme.size() < kMaxGraphemeBytes ? find(grapheme) : std::nullopt;
      if (whole) {
        put(out, end, *whole);
      } else {
        while (out.at() < end) {
          const auto one = find(out.next_bytes());
          if (one)
            put(out, out.at() + out.next_bytes().size(), *one);
          else
            out.keep();
        }
      }
      at = end;
    }
    out.finish();
  }

 private:
  // What stands for the shortest beginning of the key that the trie knows.
  std::optional<std::string_view> find(std::string_view key) const {
    size_t node = offset(units_[0]);
    for (const char c : key) {
      node ^= uint8_t(c);
      if (c == 0 || node >= units_.size()) return std::nullopt;
      const uint32_t unit = units_[node];
      if ((unit & 0x800000ffu) != uint8_t(c)) return std::nullopt;
      node ^= offset(unit);
      if (node >= units_.size()) return std::nullopt;
      if ((unit >> 8 & 1) != 0) return text_at(units_[node] & 0x7fffffffu);
    }
    return std::nullopt;
  }
  static size_t offset(uint32_t unit) { return size_t(unit >> 10) << ((unit & (1u << 9)) >> 6); }
  std::string_view text_at(size_t begin) const {
    if (begin >= texts_.size()) return {};
    return std::string_view(texts_).substr(begin, texts_.find('\0', begin) - begin);
  }

  // New characters take the places of the old ones in order; what is left over is removed or added.
  static void put(Rewriter& out, size_t end, std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_char(text, at);
      if (out.at() < end)
        out.replace(c.code);
      else
        out.insert(c.code);
      at += c.bytes;
    }
    while (out.at() < end) out.remove();
  }

  Regex grapheme_;
  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace

std::unique_ptr<const Normalizer> make_character_map(const JsonNode& node) {
  return std::make_unique<CharacterMap>(node.at("precompiled_charsmap"));
}

}  // namespace zeno::data::tokenizer
