// The tokenizer of a model folder, as its tokenizer.json describes it (or GPT-2's vocab.json and merges.txt):
// the same ids, spans and texts as the Hugging Face `tokenizers` library gives. Features of a file that are
// not supported are refused by name and position, never approximated. `truncation` and `padding` of the file
// are not applied, as in transformers.
//
// A cheap value: copies share what was read. Safe to share between threads. All calls block.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/data/text_span.h"

namespace zeno::data {

struct EncodeOptions {
  bool add_special = false;    // run the post-processor (bos, eos, …)
  bool parse_special = false;  // special tokens written in the text become their ids; off: they are text
};

struct Encoding {
  std::vector<int32_t> ids;
  std::vector<TextSpan> spans;  // of each id: bytes of the input; empty where the post-processor added it
};

using TakeToken = std::function<void(int32_t id, TextSpan span)>;

class Tokenizer {
 public:
  static Tokenizer open(const Path& folder);
  static bool exists(const Path& folder);  // does the folder have files that open() reads?
  // `where` names the text in error messages.
  static Tokenizer parse(std::string_view json, std::string_view where);

  // Bytes that are not UTF-8 survive in byte-level tokenizers; the others see U+FFFD in their place.
  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;
  Encoding encode_with_spans(std::string_view text, EncodeOptions options = {}) const;
  // The same tokens one by one, as they are made: what they become takes the memory, not they.
  void for_each_token(std::string_view text, EncodeOptions options, const TakeToken& take) const;
  // Many texts on all cores, in order.
  std::vector<std::vector<int32_t>> encode_all(std::span<const std::string_view> texts,
                                               EncodeOptions options = {}) const;
  // Special tokens come back as their own text, unless skipped; an id the tokenizer does not have is an
  // Error(data). Byte-level tokenizers give back exactly the bytes of the ids, UTF-8 or not.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  std::optional<int32_t> bos() const;
  std::optional<int32_t> eos() const;  // the token that ends a document, if the folder has one
  std::optional<int32_t> pad() const;
  std::span<const int32_t> stops() const;  // ids that end generation: eos and those of generation_config.json
  std::optional<int32_t> id_of(std::string_view token) const;  // by its text in the file
  bool is_special(int32_t id) const;
  int64_t vocab_size() const;  // largest id + 1

 private:
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;  // shared by copies, never changed
};

// Decodes a growing sequence for display: text is returned as soon as it is complete UTF-8 characters. The
// pieces together are decode() of the sequence, but where byte tokens turn out not to be UTF-8 after all.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false);
  std::string push(int32_t id);
  std::string finish();  // what is left, whole or not; then a new sequence may start

 private:
  std::string advance(bool all);
  Tokenizer tokenizer_;
  bool skip_special_;
  std::vector<int32_t> ids_;  // of the last text handed out, and what came behind it
  size_t shown_ids_ = 0;      // how many of them have been handed out
  std::string shown_;         // the text of those
};

// tokenizer.json of a byte-level tokenizer for a model with `vocab_size` >= 256 tokens: ids 0..255 are the
// bytes, then, as far as there is room, <|endoftext|> and the two marks of ChatML, <|im_start|> and
// <|im_end|>.
std::string byte_tokenizer_json(int64_t vocab_size);

}  // namespace zeno::data
