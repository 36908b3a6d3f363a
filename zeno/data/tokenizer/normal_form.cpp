#include "zeno/data/tokenizer/normal_form.h"
#include "zeno/data/tokenizer/unicode.h"

#include <algorithm>
#include <vector>

namespace zeno::data::tokenizer {
namespace {

// Nothing above decomposes, combines or is the second part of anything.
constexpr char32_t kFormsEnd = 0x30000;

// Characters of one stretch on their way to the normal form. `change` counts as the library does: 0 takes
// the place of one character read, 1 is new, -n takes the place of one and of the n after it.
struct Part {
  char32_t code;
  uint8_t combining;
  int change;
};

// One bit per form.
uint8_t bit_of(NormalForm form) { return uint8_t(1 << (2 * form.compose + form.compatible)); }

// The bits of the forms in which a character may become another one, move, or combine with the one before it.
std::vector<uint8_t> make_unstable() {
  std::vector<uint8_t> unstable(kFormsEnd);
  std::u32string parts;
  for (char32_t code = 0x80; code < kFormsEnd; ++code) {
    if (combining_class(code) != 0) unstable[code] = 0xf;
    for (const bool compatible : {false, true}) {
      if (!decompose(code, compatible, parts)) continue;
      unstable[code] |= bit_of({false, compatible});
      // A character that its own parts compose to again is in the composed form.
      char32_t whole = parts[0];
      for (size_t i = 1; i < parts.size(); ++i) whole = whole == 0 ? 0 : compose(whole, parts[i]);
      if (whole != code) unstable[code] |= bit_of({true, compatible});
      for (size_t i = 1; i < parts.size() && !compatible; ++i) {
        unstable[parts[i]] |= bit_of({true, false}) | bit_of({true, true});
      }
    }
  }
  return unstable;
}

class Unstable {
 public:
  explicit Unstable(NormalForm form) : bit_(bit_of(form)), table_(table().data()) {}
  bool operator()(char32_t code) const { return code < kFormsEnd && (table_[code] & bit_) != 0; }

 private:
  static const std::vector<uint8_t>& table() {
    static const std::vector<uint8_t> unstable = make_unstable();
    return unstable;
  }
  uint8_t bit_;
  const uint8_t* table_;
};

void decompose_into(std::vector<Part>& parts, char32_t code, bool compatible) {
  std::u32string codes;
  if (!decompose(code, compatible, codes)) codes.assign(1, code);
  for (size_t i = 0; i < codes.size(); ++i) {
    parts.push_back({codes[i], combining_class(codes[i]), i == 0 ? 0 : 1});
  }
}

void reorder(std::vector<Part>& parts) {
  for (auto first = parts.begin(); first != parts.end();) {
    if (first->combining == 0) {
      ++first;
      continue;
    }
    const auto last = std::find_if(first, parts.end(), [](const Part& part) { return part.combining == 0; });
    std::stable_sort(first, last, [](const Part& a, const Part& b) { return a.combining < b.combining; });
    first = last;
  }
}

void compose_parts(std::vector<Part>& parts) {
  std::vector<Part> out;
  constexpr size_t kNone = size_t(-1);
  size_t starter = kNone;
  for (const Part& part : parts) {
    // Blocked when something between the starter and this character is not of a lower class.
    const bool adjacent = starter != kNone && starter + 1 == out.size();
    const bool open = starter != kNone && (adjacent || out.back().combining < part.combining);
    if (const char32_t whole = open ? compose(out[starter].code, part.code) : 0; whole != 0) {
      out[starter].code = whole;
      out[starter].change += part.change - 1;
      continue;
    }
    if (part.combining == 0) starter = out.size();
    out.push_back(part);
  }
  parts = std::move(out);
}

}  // namespace

bool NormalForm::changes(std::string_view text) const {
  size_t at = 0;
  while (at < text.size() && uint8_t(text[at]) < 0x80) ++at;
  if (at == text.size()) return false;
  const Unstable unstable(*this);
  while (at < text.size()) {
    const Utf8Char c = decode_char(text, at);
    if (unstable(c.code)) return true;
    at += c.bytes;
  }
  return false;
}

void NormalForm::apply(AlignedText& text) const {
  const Unstable unstable(*this);
  Rewriter out(text);
  const std::string_view in = text.text;
  std::vector<Part> parts;
  while (out.more()) {
    // A stretch: a character and the unstable ones after it. Nothing combines across its borders.
    const Utf8Char first = decode_char(in, out.at());
    size_t end = out.at() + first.bytes;
    bool stable = !unstable(first.code);
    while (end < in.size()) {
      const Utf8Char c = decode_char(in, end);
      if (!unstable(c.code)) break;
      stable = false;
      end += c.bytes;
    }
    if (stable) {
      out.keep();
      continue;
    }
    parts.clear();
    for (size_t at = out.at(); at < end; at += decode_char(in, at).bytes) {
      decompose_into(parts, decode_char(in, at).code, compatible);
    }
    reorder(parts);
    if (compose) compose_parts(parts);
    for (const Part& part : parts) {
      if (part.change > 0) {
        out.insert(part.code);
        continue;
      }
      out.replace(part.code);
      for (int i = 0; i > part.change; --i) out.remove();
    }
  }
  out.finish();
}

}  // namespace zeno::data::tokenizer
