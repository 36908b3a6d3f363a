#include <algorithm>
#include <array>
#include <limits>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"
#include "zeno/data/tokenizer/byte_trie.h"
#include "zeno/data/tokenizer/json_node.h"
#include "zeno/data/tokenizer/limits.h"
#include "zeno/data/tokenizer/model.h"

namespace zeno::data::tokenizer {
namespace {

constexpr double kUnknownPenalty = 10.0;  // below the worst token, as in SentencePiece
constexpr int32_t kNoToken = -1;

class Unigram final : public Model {
 public:
  Unigram(const JsonNode& node, const Vocabulary& vocabulary) : where_(node.where()) {
    const std::vector<JsonNode> entries = node.at("vocab").items();
    double worst = std::numeric_limits<double>::infinity();
    for (size_t id = 0; id < entries.size(); ++id) {
      const std::vector<JsonNode> parts = entries[id].items();
      scores_.push_back(parts[1].number());
      worst = std::min(worst, scores_.back());
      const std::string text = parts[0].string_up_to(kMaxMatchedBytes);
      // Of a text listed twice the last counts.
      if (!text.empty() && vocabulary.find(text) == int32_t(id)) pieces_.add(text, int32_t(id));
    }
    unknown_score_ = worst - kUnknownPenalty;
    if (const auto unknown = node.find("unk_id")) {
      unknown_ = int32_t(unknown->integer(0, int64_t(entries.size()) - 1));
    }
    byte_tokens_.fill(kNoToken);
    if (!node.boolean_or("byte_fallback", false)) return;
    for (size_t byte = 0; byte < 256; ++byte) {
      byte_tokens_[byte] = vocabulary.find(fmt::format("<0x{:02X}>", byte)).value_or(kNoToken);
    }
  }

  void encode(std::string_view piece, Workspace& work, std::vector<Token>& out) const override {
    check_piece(piece);
    find_best(piece, work.nodes);
    const size_t first = out.size();
    for (auto end = uint32_t(piece.size()); end > 0;) {
      const UnigramNode& node = work.nodes[end];
      // Neighbouring unknown characters are one token.
      const bool fuse = node.id == unknown_ && out.size() > first && out.back().id == unknown_;
      if (fuse)
        out.back().begin = node.begin;
      else
        out.push_back({node.id, node.begin, end});
      end = node.begin;
    }
    std::reverse(out.begin() + ptrdiff_t(first), out.end());
    replace_unknown(piece, first, out);
  }

 private:
  void find_best(std::string_view piece, std::vector<UnigramNode>& nodes) const {
    nodes.assign(piece.size() + 1, {});
    const auto offer = [&](size_t begin, size_t end, int32_t id, double score) {
      UnigramNode& node = nodes[end];
      if (!node.reached || score > node.score) node = {score, id, uint32_t(begin), true};
    };
    for (size_t at = 0; at < piece.size();) {
      const double here = nodes[at].score;
      const size_t next = at + decode_char(piece, at).bytes;
      bool single = false;
      pieces_.for_each_prefix(piece, at, [&](size_t end, int32_t id) {
        offer(at, end, id, scores_[size_t(id)] + here);
        single |= end == next;
      });
      if (!single) {
        require(unknown_ != kNoToken, ErrorKind::data,
                "[tokenizer] {}: got a character outside the vocabulary and no unk_id, expected one", where_);
        offer(at, next, unknown_, unknown_score_ + here);
      }
      at = next;
    }
  }

  // A run of unknown characters may, as a whole, be a token; else it is bytes where the vocabulary has them.
  void replace_unknown(std::string_view piece, size_t first, std::vector<Token>& out) const {
    const auto unknown = [&](const Token& token) { return token.id == unknown_; };
    const auto begin = std::find_if(out.begin() + ptrdiff_t(first), out.end(), unknown);
    const std::vector<Token> rest(begin, out.end());
    out.erase(begin, out.end());
    for (const Token& token : rest) {
      const std::string_view text = piece.substr(token.begin, token.end - token.begin);
      const auto has = [&](char byte) { return byte_tokens_[uint8_t(byte)] != kNoToken; };
      const auto whole = unknown(token) ? pieces_.longest(text, 0) : std::nullopt;
      if (whole && whole->end == text.size()) {
        out.push_back({whole->value, token.begin, token.end});
      } else if (unknown(token) && std::ranges::all_of(text, has)) {
        for (const char byte : text) out.push_back({byte_tokens_[uint8_t(byte)], token.begin, token.end});
      } else {
        out.push_back(token);
      }
    }
  }

  std::string where_;
  ByteTrie pieces_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  int32_t unknown_ = kNoToken;
  std::array<int32_t, 256> byte_tokens_;
};

}  // namespace

Vocabulary read_unigram_vocabulary(const JsonNode& node) {
  Vocabulary vocabulary;
  const std::vector<JsonNode> entries = node.items();
  if (int64_t(entries.size()) > kMaxId) node.refuse(fmt::format("{} tokens", entries.size()), "fewer");
  for (size_t id = 0; id < entries.size(); ++id) {
    const std::vector<JsonNode> parts = entries[id].items();
    if (parts.size() != 2) entries[id].refuse(fmt::format("{} parts", parts.size()), "a text and its score");
    vocabulary.ids[parts[0].string()] = int32_t(id);
  }
  return vocabulary;
}

std::unique_ptr<const Model> make_unigram(const JsonNode& node, const Vocabulary& vocabulary) {
  return std::make_unique<Unigram>(node, vocabulary);
}

}  // namespace zeno::data::tokenizer
