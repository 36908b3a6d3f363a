// Runs say of every character what a list with one entry per byte says.
#include "zeno/data/tokenizer/normalize/origins.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "zeno/base/utf8.h"
#include "zeno/data/tokenizer/normalize/aligned_text.h"

namespace zeno::data::tokenizer {
namespace {

// A rewritten text, and the origin of each of its bytes.
struct Rewritten {
  std::string text;
  std::vector<TextSpan> bytes;
  Origins origins;

  void add(std::string_view character, TextSpan from) {
    text += character;
    bytes.resize(text.size(), from);
    origins.add(character, from);
  }
};

Rewritten random_text(std::mt19937& random, size_t characters) {
  const std::string_view kinds[] = {"a", "é", "▁", "😀"};
  Rewritten out;
  size_t input = 0;
  for (size_t i = 0; i < characters; ++i) {
    const std::string_view character = kinds[random() % 4];
    switch (random() % 8) {
      case 0:  // replaced
        out.add(character, {input, input + 1 + random() % 4});
        break;
      case 1:  // something was removed before it
        input += 1 + random() % 300;
        [[fallthrough]];
      case 2:  // one more character for the last one
        if (!out.bytes.empty()) {
          out.add(character, out.bytes.back());
          continue;
        }
        [[fallthrough]];
      default:
        out.add(character, {input, input + character.size()});
    }
    input = out.bytes.back().end;
  }
  return out;
}

TextSpan origin_of(const Rewritten& rewritten, size_t at) {
  return rewritten.origins.run_at(at).of(at, decode_char(rewritten.text, at).bytes);
}

TEST(Origins, AreThoseOfEveryByte) {
  std::mt19937 random(1);
  for (const size_t characters : {1, 2, 50, 20'000}) {
    const Rewritten rewritten = random_text(random, characters);
    std::vector<size_t> starts;
    for (size_t at = 0; at < rewritten.text.size(); at += decode_char(rewritten.text, at).bytes) {
      ASSERT_EQ(origin_of(rewritten, at), rewritten.bytes[at]) << at;
      starts.push_back(at);
    }
    for (int i = 0; i < 1000; ++i) {
      const size_t at = starts[random() % starts.size()];
      ASSERT_EQ(origin_of(rewritten, at), rewritten.bytes[at]) << at;
    }
  }
}

TEST(Origins, OfATextThatIsRewrittenAgain) {
  std::mt19937 random(2);
  const std::string input = random_text(random, 5000).text;
  Rewriting rewriting(input.size(), true);
  AlignedText text({input}, rewriting);
  std::vector<TextSpan> bytes;
  for (size_t at = 0; at < input.size();) {
    const size_t size = decode_char(input, at).bytes;
    bytes.resize(bytes.size() + size, {at, at + size});
    at += size;
  }
  for (int step = 0; step < 4; ++step) {
    std::vector<TextSpan> wanted;
    Rewriter out(text);
    while (out.more()) {
      const TextSpan here = bytes[out.at()];
      const std::string character(out.next_bytes());
      switch (random() % 10) {
        case 0:
          out.remove();
          break;
        case 1:
          out.replace(U'▁');
          wanted.resize(wanted.size() + 3, here);
          break;
        case 2:
          out.keep();
          out.insert("ab");
          wanted.resize(wanted.size() + character.size() + 2, here);
          break;
        default:
          out.keep();
          wanted.resize(wanted.size() + character.size(), here);
      }
    }
    out.finish();
    bytes = std::move(wanted);
    ASSERT_EQ(text.text.size(), bytes.size());
  }
  const Piece piece = text.view();
  for (size_t at = 0; at < piece.text.size();) {
    const size_t end = at + decode_char(piece.text, at).bytes;
    ASSERT_EQ(piece.span(at, end), bytes[at]) << at;
    ASSERT_EQ(piece.part(at, end).start(), bytes[at].begin) << at;
    at = end;
  }
}

}  // namespace
}  // namespace zeno::data::tokenizer
