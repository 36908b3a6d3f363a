#include <algorithm>

#include "zeno/data/tokenizer.h"

namespace zeno::data {
namespace {

constexpr std::string_view kUnfinished =
    "\ufffd";  // what decoders show for bytes that are not a character yet

// How much of the text is certain: all but a last character that more bytes may complete.
size_t certain_bytes(std::string_view text) {
  if (text.ends_with(kUnfinished)) return 0;  // byte tokens: the whole run may still change
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = uint8_t(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer), skip_special_(skip_special) {}

std::string StreamDecoder::push(int32_t id) {
  ids_.push_back(id);
  return advance(false);
}

std::string StreamDecoder::finish() {
  std::string rest = advance(true);
  ids_.clear();
  shown_.clear();
  shown_ids_ = 0;
  return rest;
}

std::string StreamDecoder::advance(bool all) {
  std::string text = tokenizer_.decode(ids_, skip_special_);
  if (all || certain_bytes(text) == text.size()) {
    // Byte tokens that make no character spoil those in front of them, which have been shown: leave these
    // out.
    const std::span<const int32_t> fresh_ids = std::span(ids_).subspan(shown_ids_);
    if (!text.starts_with(shown_)) text = shown_ + tokenizer_.decode(fresh_ids, skip_special_);
  }
  const size_t certain = all ? text.size() : certain_bytes(text);
  if (certain <= shown_.size()) return {};
  std::string fresh = text.substr(shown_.size(), certain - shown_.size());
  if (certain < text.size()) {
    shown_ = text.substr(0, certain);  // the ids stay: the last of them is not all shown
    return fresh;
  }
  // The ids shown before are of no more use; those shown now stay, since decoders look at what is in front.
  ids_.erase(ids_.begin(), ids_.begin() + ptrdiff_t(shown_ids_));
  shown_ids_ = ids_.size();
  shown_ = tokenizer_.decode(ids_, skip_special_);
  return fresh;
}

}  // namespace zeno::data
