#include "zeno/data/tokenizer/pipeline.h"

#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"
#include "zeno/data/reserve_by_share.h"
#include "zeno/data/tokenizer/json_node.h"
#include "zeno/data/tokenizer/limits.h"
#include "zeno/data/tokenizer/unicode.h"

namespace zeno::data::tokenizer {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";  // SentencePiece's space
constexpr char32_t kByteSpace = 0x120;             // GPT-2's name for it
constexpr size_t kKeptWorkspace = size_t(4) << 20;

// White space at the ends of a token's text, GPT-2's name for the space counted in.
Blanks count_blanks(std::string_view text) {
  const auto blank = [](char32_t code) { return code == kByteSpace || is_space(code); };
  Blanks blanks;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_char(text, at);
    if (!blank(c.code)) break;
    ++blanks.leading;
    at += c.bytes;
  }
  for (size_t end = text.size(); end > 0;) {
    const Utf8Char c = decode_char_before(text, end);
    if (!blank(c.code)) break;
    ++blanks.trailing;
    end -= c.bytes;
  }
  return blanks;
}

std::string model_type(const JsonNode& model) {
  if (model.find("type")) return model.type();
  // Old files name no type. The tokenizers library takes the first model whose keys are all there.
  const auto has = [&](const char* key) { return model.find(key).has_value(); };
  const auto vocab = model.find("vocab");
  if (vocab && has("merges")) return "BPE";
  if (vocab && vocab->is_array()) return "Unigram";
  if (vocab && has("unk_token")) {
    const bool pieces = has("continuing_subword_prefix") && has("max_input_chars_per_word");
    return pieces ? "WordPiece" : "WordLevel";
  }
  model.refuse("no type", "BPE, Unigram, WordPiece or WordLevel, or the keys of one of them");
}

}  // namespace

Pipeline::Pipeline(const nlohmann::json& json, std::string_view where) {
  const JsonNode root(json, std::string(where));
  const JsonNode model = root.at("model");
  if (const auto node = root.find("normalizer")) normalizer_ = make_normalizer(*node);
  vocabulary_ = model_type(model) == "Unigram" ? read_unigram_vocabulary(model.at("vocab"))
                                               : Vocabulary::read(model.at("vocab"));
  read_tokens(root);
  read_model(model, root);
  if (const auto node = root.find("post_processor")) post_ = PostProcessor(*node);
  if (const auto node = root.find("decoder")) decoder_ = make_decoder(*node);
}

void Pipeline::place(int32_t id, const std::string& text, const JsonNode& node) {
  require(text.size() <= kMaxTokenBytes, ErrorKind::data,
          "[tokenizer] {}: token {} has {} bytes, expected at most {}", node.where(), id, text.size(),
          kMaxTokenBytes);
  if (size_t(id) >= texts_.size()) texts_.resize(size_t(id) + 1);
  Text& entry = texts_[size_t(id)];
  require(!entry.known || entry.text == text, ErrorKind::data,
          "[tokenizer] {}: got two tokens with id {} ('{}' and '{}'), expected one", node.where(), id,
          shortened(entry.text, 60), shortened(text, 60));
  entry = {text, true, entry.special, count_blanks(text)};
}

void Pipeline::read_tokens(const JsonNode& root) {
  for (const auto& [text, id] : vocabulary_.ids) place(id, text, root);
  std::vector<AddedToken> tokens;
  if (const auto list = root.find("added_tokens")) {
    for (const JsonNode& node : list->items()) {
      AddedToken token = AddedToken::read(node);
      // Added tokens may be listed in the vocabulary as well; there they must have the same id.
      const auto listed = vocabulary_.ids.find(token.content);
      require(listed == vocabulary_.ids.end() || listed->second == token.id, ErrorKind::data,
              "[tokenizer] {}: token '{}': got ids {} and {}, expected one", node.where(),
              shortened(token.content, 60), listed == vocabulary_.ids.end() ? 0 : listed->second, token.id);
      place(token.id, token.content, node);
      added_ids_[token.content] = token.id;
      if (token.special) {
        texts_[size_t(token.id)].special = true;
        vocabulary_.hidden.insert(token.id);
      }
      tokens.push_back(std::move(token));
    }
  }
  added_ = AddedTokens(std::move(tokens), normalizer_.get());
}

void Pipeline::read_model(const JsonNode& model, const JsonNode& root) {
  const std::string type = model_type(model);
  const auto pre = root.find("pre_tokenizer");
  if (type == "BPE") {
    const BpeOptions options = BpeOptions::read(model);
    if (pre) pre_ = make_pre_tokenizers(*pre, options.takes_bytes());
    // Many files hand the model a whole text as one piece: without pre-tokenizers, or with such that do not
    // split it (Llama, Gemma).
    if (!pre_.raw_bytes && splits_at_mark(vocabulary_, options, kSpaceMark)) {
      pre_.steps.push_back(make_mark_splitter(std::string(kSpaceMark)));
    }
    model_ = make_bpe(vocabulary_, options, pre_.raw_bytes, model.where());
    return;
  }
  if (pre) pre_ = make_pre_tokenizers(*pre, false);
  if (type == "Unigram")
    model_ = make_unigram(model, vocabulary_);
  else if (type == "WordPiece")
    model_ = make_word_piece(model, vocabulary_);
  else if (type == "WordLevel")
    model_ = make_word_level(model, vocabulary_);
  else
    model.unknown_type("model");
}

// One encoding. Also the last step of the pre-tokenizers: pieces become tokens here.
class Pipeline::Run final : public PieceSink {
 public:
  Run(const Pipeline& pipeline, Room& room, Rewriting& rewriting, std::string_view whole,
      EncodeOptions options, std::vector<int32_t>* ids, const TakeToken* take)
      : pipeline_(pipeline),
        room_(room),
        rewriting_(rewriting),
        whole_(whole),
        parse_special_(options.parse_special),
        frame_(pipeline.post_.frame(options.add_special)),
        ids_(ids),
        take_(take) {}

  // Tokens around the text.
  void put(const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) hand_over(id, {});
  }

  void input(const Piece& text) {
    pipeline_.added_.split_input(text.text, parse_special_,
                                 [&](size_t begin, size_t end, const AddedToken* token) {
                                   if (token != nullptr)
                                     add(*token, text.part(begin, end));
                                   else
                                     runs_of_utf8(text.part(begin, end));
                                 });
  }

  void take(const Piece& piece) override {
    WordCache::Entry* entry = WordCache::fits(piece.text) ? &room_.cache.entry(piece.text) : nullptr;
    if (entry != nullptr && WordCache::holds(*entry, piece.text)) {
      seen_ += piece.text.size();
      for (size_t i = 0; i < entry->tokens; ++i) add(entry->ids[i], piece, entry->begin[i], entry->end[i]);
      return;
    }
    require(piece.text.size() < UINT32_MAX, ErrorKind::data,
            "[tokenizer] got {} bytes in one piece, expected less than 4 GB; split the text",
            piece.text.size());
    std::vector<Token>& tokens = room_.work.tokens;
    const size_t most = pipeline_.model_->longest_piece();
    for (size_t at = 0; at < piece.text.size(); at += std::min(most, piece.text.size() - at)) {
      const std::string_view part = piece.text.substr(at, most);
      seen_ += part.size();
      tokens.clear();
      pipeline_.model_->encode(part, room_.work, tokens);
      for (const Token& token : tokens) add(token.id, piece, at + token.begin, at + token.end);
    }
    if (entry != nullptr) WordCache::put(*entry, piece.text, tokens);
  }

 private:
  // Hands pieces of step i - 1 to step i.
  struct Stage final : PieceSink {
    Stage(Run& run_, size_t step_) : run(run_), step(step_) {}
    void take(const Piece& piece) override { run.pre_tokenize(piece, step); }
    Run& run;
    size_t step;
  };

  // Byte-level models keep bytes that are not UTF-8: each run of them is a piece of its own.
  void runs_of_utf8(const Piece& text) {
    for (size_t at = 0; at < text.text.size();) {
      size_t end = at + valid_utf8_run(text.text, at);
      if (end > at) normalize(text.part(at, end));
      for (at = end; end < text.text.size() && !decode_char(text.text, end).valid;) ++end;
      if (end > at) take(text.part(at, end));
      at = end;
    }
  }

  void normalize(const Piece& text) {
    const Normalizer* normalizer = pipeline_.normalizer_.get();
    if (normalizer == nullptr || !normalizer->changes(text.text)) return normalized(text);
    AlignedText rewritten(text, rewriting_);
    normalizer->apply(rewritten);
    normalized(rewritten.view());
  }

  void normalized(const Piece& text) {
    if (text.text.empty()) return;
    if (!pipeline_.added_.any_normalized()) return pre_tokenize(text, 0);
    pipeline_.added_.split_normalized(text.text, parse_special_,
                                      [&](size_t begin, size_t end, const AddedToken* token) {
                                        if (token != nullptr)
                                          add(*token, text.part(begin, end));
                                        else
                                          pre_tokenize(text.part(begin, end), 0);
                                      });
  }

  void pre_tokenize(const Piece& piece, size_t step) {
    const auto& steps = pipeline_.pre_.steps;
    if (step == steps.size()) return take(piece);
    if (step + 1 == steps.size()) return steps[step]->split(piece, rewriting_, *this);
    Stage next(*this, step + 1);
    steps[step]->split(piece, rewriting_, next);
  }

  void add(int32_t id, const Piece& piece, size_t begin, size_t end) {
    if (take_ == nullptr) return add(id);
    add(id, piece.span(begin, end), pipeline_.texts_[size_t(id)].blanks);
  }
  void add(const AddedToken& token, const Piece& match) {
    seen_ += match.text.size();
    if (take_ == nullptr) return add(token.id);
    add(token.id, match.span(0, match.text.size()), count_blanks(match.text));
  }
  void add(int32_t id) {
    if (frame_.text) hand_over(id, {});
  }
  void add(int32_t id, TextSpan span, Blanks blanks) {
    if (!frame_.text) return;
    hand_over(id, frame_.trimmed(span, blanks, whole_, first_));
    first_ = false;
  }
  void hand_over(int32_t id, TextSpan span) {
    if (take_ != nullptr) return (*take_)(id, span);
    if (ids_->size() == ids_->capacity()) reserve_by_share(*ids_, seen_, rewriting_.bytes());
    ids_->push_back(id);
  }

  const Pipeline& pipeline_;
  Room& room_;
  Rewriting& rewriting_;
  std::string_view whole_;
  bool parse_special_;
  const Frame& frame_;
  std::vector<int32_t>* ids_;
  const TakeToken* take_;
  size_t seen_ = 0;  // bytes that have become tokens
  bool first_ = true;
};

void Pipeline::encode(std::string_view text, EncodeOptions options, std::vector<int32_t>& ids) const {
  encode(text, options, &ids, nullptr);
}

void Pipeline::encode(std::string_view text, EncodeOptions options, const TakeToken& take) const {
  encode(text, options, nullptr, &take);
}

void Pipeline::encode(std::string_view text, EncodeOptions options, std::vector<int32_t>* ids,
                      const TakeToken* take) const {
  std::unique_ptr<Room> room = borrow_room();
  const bool rewritten = !pre_.raw_bytes && !is_valid_utf8(text);
  const bool track = take != nullptr || (pre_.needs_origin && (normalizer_ != nullptr || rewritten));
  Rewriting rewriting(text.size(), track);
  Run run(*this, *room, rewriting, text, options, ids, take);
  const Frame& frame = post_.frame(options.add_special);
  run.put(frame.before);
  if (!text.empty()) {
    // Only byte-level models can keep what is not UTF-8; the others see U+FFFD.
    if (rewritten)
      run.input(AlignedText({text}, rewriting).view());
    else
      run.input({text});
  }
  run.put(frame.after);
  return_room(std::move(room));
}

std::string Pipeline::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    require(has(id), ErrorKind::data,
            "[tokenizer] decode: got id {}, expected one of the {} tokens of the folder", id, texts_.size());
    if (!skip_special || !texts_[size_t(id)].special) tokens.push_back(texts_[size_t(id)].text);
  }
  if (decoder_ != nullptr) decoder_->apply(tokens);
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && decoder_ == nullptr) text += ' ';
    text += tokens[i];
  }
  return text;
}

std::optional<int32_t> Pipeline::id_of(std::string_view token) const {
  const std::string text(token);
  if (const auto found = added_ids_.find(text); found != added_ids_.end()) return found->second;
  if (const auto found = vocabulary_.ids.find(text); found != vocabulary_.ids.end()) return found->second;
  return std::nullopt;
}

std::unique_ptr<Pipeline::Room> Pipeline::borrow_room() const {
  {
    const std::lock_guard lock(mutex_);
    if (!rooms_.empty()) {
      std::unique_ptr<Room> room = std::move(rooms_.back());
      rooms_.pop_back();
      return room;
    }
  }
  return std::make_unique<Room>();
}

void Pipeline::return_room(std::unique_ptr<Room> room) const {
  if (room->work.bytes() > kKeptWorkspace) room->work = {};  // of a word as long as a book
  const std::lock_guard lock(mutex_);
  rooms_.push_back(std::move(room));
}

}  // namespace zeno::data::tokenizer
