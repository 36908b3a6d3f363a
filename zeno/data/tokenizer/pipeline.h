// All parts of a tokenizer.json together: input → added tokens → normalizer → pre-tokenizers → model →
// post-processor, and back through the decoder. Immutable; safe from any thread: what an encoding needs while
// it runs comes from a pool.
#pragma once

#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "zeno/data/tokenizer.h"
#include "zeno/data/tokenizer/added_tokens.h"
#include "zeno/data/tokenizer/decoder.h"
#include "zeno/data/tokenizer/model.h"
#include "zeno/data/tokenizer/normalize/normalizer.h"
#include "zeno/data/tokenizer/post_processor.h"
#include "zeno/data/tokenizer/pre_tokenizer.h"
#include "zeno/data/tokenizer/word_cache.h"

namespace zeno::data::tokenizer {

class Pipeline {
 public:
  // `where` names the file in errors.
  Pipeline(const nlohmann::json& root, std::string_view where);

  // Appends ids, or hands over each with its span.
  void encode(std::string_view text, EncodeOptions options, std::vector<int32_t>& ids) const;
  void encode(std::string_view text, EncodeOptions options, const TakeToken& take) const;
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  const AddedTokens& added() const { return added_; }
  std::optional<int32_t> id_of(std::string_view token) const;
  bool has(int64_t id) const { return id >= 0 && size_t(id) < texts_.size() && texts_[size_t(id)].known; }
  bool is_special(int64_t id) const { return has(id) && texts_[size_t(id)].special; }
  int64_t vocab_size() const { return int64_t(texts_.size()); }

 private:
  struct Text {
    std::string text;
    bool known = false, special = false;
    Blanks blanks;
  };
  // What one encoding needs while it runs; the cache outlives it, for the next one.
  struct Room {
    WordCache cache;
    Workspace work;
  };
  class Run;

  void read_tokens(const JsonNode& root);
  void read_model(const JsonNode& model, const JsonNode& root);
  void place(int32_t id, const std::string& text, const JsonNode& node);
  // To one of the two.
  void encode(std::string_view text, EncodeOptions options, std::vector<int32_t>* ids,
              const TakeToken* take) const;
  std::unique_ptr<Room> borrow_room() const;
  void return_room(std::unique_ptr<Room> room) const;

  std::unique_ptr<const Normalizer> normalizer_;
  PreTokenizers pre_;
  Vocabulary vocabulary_;
  std::unique_ptr<const Model> model_;
  AddedTokens added_;
  PostProcessor post_;
  std::unique_ptr<const Decoder> decoder_;
  std::vector<Text> texts_;  // by id
  std::unordered_map<std::string, int32_t> added_ids_;

  mutable std::mutex mutex_;  // guards rooms_
  mutable std::vector<std::unique_ptr<Room>> rooms_;
};

}  // namespace zeno::data::tokenizer
