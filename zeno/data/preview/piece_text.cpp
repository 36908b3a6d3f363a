#include "zeno/data/preview/piece_text.h"

#include <algorithm>

#include "zeno/base/utf8.h"

namespace zeno::data {
namespace {

// Decoders look at the tokens in front of a token to write it, but never far.
constexpr size_t kContext = 8;

size_t common_prefix(std::string_view a, std::string_view b) {
  return size_t(std::ranges::mismatch(a, b).in1 - a.begin());
}

// The start of the character that byte `at` belongs to. Bytes that are not UTF-8 are characters of their own.
size_t character_start(std::string_view text, size_t at) {
  for (size_t back = 1; back <= std::min<size_t>(3, at) && at < text.size(); ++back) {
    const Utf8Char c = decode_char(text, at - back);
    if (c.valid && c.bytes > back) return at - back;
  }
  return at;
}

// Finds where prefixes of a sequence end in its text.
class PrefixText {
 public:
  PrefixText(const Tokenizer& tokenizer, std::span<const int32_t> ids, std::string_view text)
      : tokenizer_(tokenizer), ids_(ids), text_(text) {}

  // Bytes of the text that ids[0, end) wrote. Calls come with ascending ends.
  size_t bytes(size_t end) {
    if (!grow(end)) written_ = common_prefix(tokenizer_.decode(ids_.first(end)), text_);
    end_ = end;
    return written_;
  }

 private:
  // The cheap way, without decoding everything in front again: what decode() adds behind a few tokens of
  // context, if the text continues with it. Byte tokens that are not a whole character are a case where it
  // does not.
  bool grow(size_t end) {
    const size_t from = end_ - std::min(end_, kContext);
    const std::string before = tokenizer_.decode(ids_.subspan(from, end_ - from));
    const std::string after = tokenizer_.decode(ids_.subspan(from, end - from));
    if (!after.starts_with(before)) return false;
    const std::string_view added = std::string_view(after).substr(before.size());
    if (!text_.substr(written_).starts_with(added)) return false;
    written_ += added.size();
    return true;
  }

  const Tokenizer& tokenizer_;
  std::span<const int32_t> ids_;
  std::string_view text_;
  size_t end_ = 0, written_ = 0;
};

}  // namespace

std::vector<std::string> piece_texts(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                                     std::span<const size_t> ends) {
  const std::string text = tokenizer.decode(ids);
  PrefixText prefix(tokenizer, ids, text);
  std::vector<std::string> out;
  size_t begin = 0;
  for (const size_t end : ends) {
    const size_t border = end == ids.size() ? text.size() : character_start(text, prefix.bytes(end));
    const size_t stop = std::max(begin, border);
    out.push_back(text.substr(begin, stop - begin));
    begin = stop;
  }
  return out;
}

}  // namespace zeno::data
