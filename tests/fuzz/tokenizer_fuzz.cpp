// libFuzzer entry: any bytes as a tokenizer.json, and as text for tokenizers of several kinds. Only
// zeno::Error may come out.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "zeno/base/error.h"
#include "zeno/data/tokenizer.h"

namespace {

using zeno::data::Tokenizer;

void use(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool special : {false, true}) {
    const auto encoding = tokenizer.encode_with_spans(text, {special, special});
    zeno::ensure(encoding.ids == tokenizer.encode(text, {special, special}), "spans change ids");
    for (const auto& span : encoding.spans) {
      zeno::ensure(span.begin <= span.end && span.end <= text.size(), "a span leaves the text");
    }
    (void)tokenizer.decode(encoding.ids, special);
    zeno::data::StreamDecoder stream(tokenizer);
    for (const int32_t id : encoding.ids) (void)stream.push(id);
    (void)stream.finish();
  }
}

// A small unigram tokenizer with most of what rewrites text.
constexpr std::string_view kUnigram = R"({"added_tokens":[{"id":0,"content":"<unk>","special":true},
  {"id":3,"content":"ab","lstrip":true,"rstrip":true,"normalized":true},{"id":4,"content":"b","single_word":true}],
  "normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"NFD"},{"type":"Lowercase"},
    {"type":"Replace","pattern":{"Regex":"x*"},"content":"y"},{"type":"Strip","strip_left":true,"strip_right":true}]},
  "pre_tokenizer":{"type":"Metaspace","prepend_scheme":"first"},"decoder":{"type":"Metaspace"},
  "model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["a",-1],["\u2581",-2]]}})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  static const Tokenizer byte_level = Tokenizer::parse(zeno::data::byte_tokenizer_json(300), "built in");
  static const Tokenizer unigram = Tokenizer::parse(kUnigram, "built in");
  try {
    use(byte_level, text);
    use(unigram, text);
    const Tokenizer tokenizer = Tokenizer::parse(text, "fuzz.json");
    use(tokenizer, "The caf\u00e9's 123 e\u0301 \xff<unk> </s>\n");
  } catch (const zeno::Error& error) {
    if (error.kind() == zeno::ErrorKind::internal) throw;  // a broken promise of ours is a finding
  }
  return 0;
}
