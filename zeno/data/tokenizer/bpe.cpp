#include <algorithm>
#include <array>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"
#include "zeno/data/tokenizer/byte_level.h"
#include "zeno/data/tokenizer/json_node.h"
#include "zeno/data/tokenizer/limits.h"
#include "zeno/data/tokenizer/merge_table.h"
#include "zeno/data/tokenizer/model.h"

namespace zeno::data::tokenizer {
namespace {

constexpr int32_t kNoSymbol = -1;
// Up to this many symbols looking at all of them for the best merge beats a heap.
constexpr size_t kShortWord = 48;
constexpr size_t kBytesPart = 4096;  // of a piece whose bytes are tokens each

std::array<int32_t, 256> find_byte_tokens(const Vocabulary& vocabulary) {
  std::array<int32_t, 256> ids;
  for (size_t byte = 0; byte < 256; ++byte) {
    ids[byte] = vocabulary.find(fmt::format("<0x{:02X}>", byte)).value_or(kNoSymbol);
  }
  return ids;
}

class Bpe final : public Model {
 public:
  Bpe(const Vocabulary& vocabulary, const BpeOptions& options, bool raw_bytes, const std::string& where)
      : options_(options), raw_bytes_(raw_bytes), merges_(options.merges.size()) {
    options_.merges.clear();
    for (const auto& [text, id] : vocabulary.ids) {
      if (vocabulary.hidden.contains(id)) continue;
      if (!raw_bytes)
        ids_.emplace(text, id);
      else if (auto bytes = bytes_of_names(text))
        ids_.emplace(std::move(*bytes), id);
    }
    first_bytes_.fill(kNoSymbol);
    for (const auto& [text, id] : ids_) {
      if (text.size() == 1) first_bytes_[uint8_t(text[0])] = id;
    }
    add_merges(vocabulary, options, where);
    bytes_only_ = raw_bytes && options.merges.empty() && std::ranges::count(first_bytes_, kNoSymbol) == 0;
    if (options.byte_fallback) byte_tokens_ = find_byte_tokens(vocabulary);
    if (!options.unknown.empty()) {
      const auto found = vocabulary.ids.find(options.unknown);
      // The library complains only when the token is needed; a file without it may never need it.
      if (found != vocabulary.ids.end()) unknown_ = found->second;
    }
  }

  size_t longest_piece() const override {
    return bytes_only_ && !options_.ignore_merges ? kBytesPart : SIZE_MAX;
  }

  void encode(std::string_view piece, Workspace& work, std::vector<Token>& out) const override {
    if (options_.ignore_merges) {
      if (const auto whole = ids_.find(std::string(piece)); whole != ids_.end()) {
        out.push_back({whole->second, 0, uint32_t(piece.size())});
        return;
      }
    }
    if (bytes_only_) return encode_bytes(piece, out);
    check_piece(piece);
    work.symbols.clear();
    if (raw_bytes_)
      add_bytes(piece, work.symbols);
    else
      add_characters(piece, work.symbols);
    if (work.symbols.size() <= kShortWord)
      merge_short(work.symbols);
    else
      merge_long(work);
    for (const Symbol& symbol : work.symbols) {
      if (symbol.id != kNoSymbol) out.push_back({symbol.id, symbol.begin, symbol.end});
    }
  }

 private:
  void add_merges(const Vocabulary& vocabulary, const BpeOptions& options, const std::string& where) {
    const auto id_of = [&](const std::string& text, size_t rank) {
      const auto found = vocabulary.ids.find(text);
      if (found == vocabulary.ids.end())
        fail(ErrorKind::data, "[tokenizer] {}: merges[{}]: got '{}', expected a token of the vocabulary",
             where, rank, shortened(text, 60));
      return found->second;
    };
    for (size_t rank = 0; rank < options.merges.size(); ++rank) {
      const auto& [left, right] = options.merges[rank];
      const size_t skip = right.starts_with(options.continuing_prefix) ? options.continuing_prefix.size() : 0;
      const int32_t merged = id_of(left + right.substr(skip), rank);
      if (vocabulary.hidden.contains(merged)) continue;
      merges_.add(id_of(left, rank), id_of(right, rank), {uint32_t(rank), merged});
    }
  }

  static void add(std::vector<Symbol>& symbols, int32_t id, size_t begin, size_t end) {
    const auto index = int32_t(symbols.size());
    symbols.push_back({id, uint32_t(begin), uint32_t(end), index - 1, index + 1, MergeTable::kNever});
  }

  void add_unknown(std::vector<Symbol>& symbols, size_t begin, size_t end) const {
    if (unknown_ == kNoSymbol) {
      require(options_.unknown.empty(), ErrorKind::data,
              "[tokenizer] got a character outside the vocabulary, and its unk_token '{}' is missing too",
              shortened(options_.unknown, 60));
      return;  // a model without an unknown token drops what it does not know
    }
    if (options_.fuse_unknown && !symbols.empty() && symbols.back().id == unknown_ &&
        symbols.back().end == begin) {
      symbols.back().end = uint32_t(end);
    } else {
      add(symbols, unknown_, begin, end);
    }
  }

  void encode_bytes(std::string_view piece, std::vector<Token>& out) const {
    for (size_t at = 0; at < piece.size(); ++at)
      out.push_back({first_bytes_[uint8_t(piece[at])], uint32_t(at), uint32_t(at + 1)});
  }

  void add_bytes(std::string_view piece, std::vector<Symbol>& symbols) const {
    for (size_t at = 0; at < piece.size(); ++at) {
      const int32_t id = first_bytes_[uint8_t(piece[at])];
      if (id != kNoSymbol)
        add(symbols, id, at, at + 1);
      else
        add_unknown(symbols, at, at + 1);
    }
  }

  void add_characters(std::string_view piece, std::vector<Symbol>& symbols) const {
    const bool decorated = !options_.continuing_prefix.empty() || !options_.word_suffix.empty();
    for (size_t at = 0; at < piece.size();) {
      const size_t end = at + decode_char(piece, at).bytes;
      int32_t id = kNoSymbol;
      std::string text(piece.substr(at, end - at));
      if (end - at == 1 && !decorated) {
        id = first_bytes_[uint8_t(piece[at])];
      } else {
        if (at > 0) text.insert(0, options_.continuing_prefix);
        if (end == piece.size()) text += options_.word_suffix;
        if (const auto found = ids_.find(text); found != ids_.end()) id = found->second;
      }
      if (id != kNoSymbol)
        add(symbols, id, at, end);
      else if (!add_byte_tokens(text, at, symbols))
        add_unknown(symbols, at, end);
      at = end;
    }
  }

  // One token per byte, if the vocabulary has them all.
  bool add_byte_tokens(const std::string& text, size_t at, std::vector<Symbol>& symbols) const {
    if (!options_.byte_fallback) return false;
    const auto has = [&](char byte) { return byte_tokens_[uint8_t(byte)] != kNoSymbol; };
    if (!std::ranges::all_of(text, has)) return false;
    for (size_t i = 0; i < text.size(); ++i) add(symbols, byte_tokens_[uint8_t(text[i])], at + i, at + i + 1);
    return true;
  }

  // The earliest merge of the list first, the leftmost among equals.
  void merge_short(std::vector<Symbol>& symbols) const {
    size_t count = symbols.size();
    if (count < 2) return;
    std::array<MergeTable::Merge, kShortWord> merges;
    for (size_t i = 0; i + 1 < count; ++i) merges[i] = merges_.find(symbols[i].id, symbols[i + 1].id);
    while (count > 1) {
      size_t best = 0;
      for (size_t i = 1; i + 1 < count; ++i) {
        if (merges[i].rank < merges[best].rank) best = i;
      }
      if (merges[best].rank == MergeTable::kNever) break;
      symbols[best].id = merges[best].id;
      symbols[best].end = symbols[best + 1].end;
      for (size_t i = best + 1; i + 1 < count; ++i) symbols[i] = symbols[i + 1];
      for (size_t i = best + 1; i + 2 < count; ++i) merges[i] = merges[i + 1];
      --count;
      if (best + 1 < count)
        merges[best] = merges_.find(symbols[best].id, symbols[best + 1].id);
      else
        merges[best] = {};
      if (best > 0) merges[best - 1] = merges_.find(symbols[best - 1].id, symbols[best].id);
    }
    symbols.resize(count);
  }

  // The same with a heap of (rank, place): n log n for words of any length.
  void merge_long(Workspace& work) const {
    std::vector<Symbol>& symbols = work.symbols;
    std::vector<uint64_t>& heap = work.heap;
    heap.clear();
    symbols.back().next = kNoSymbol;
    const auto rank_of = [&](int32_t at) {
      Symbol& left = symbols[size_t(at)];
      left.rank = left.next == kNoSymbol ? MergeTable::kNever
                                         : merges_.find(left.id, symbols[size_t(left.next)].id).rank;
      return left.rank;
    };
    const auto entry = [](uint32_t rank, int32_t at) { return uint64_t(rank) << 32 | uint32_t(at); };
    for (int32_t at = 0; at < int32_t(symbols.size()); ++at) {
      if (const uint32_t rank = rank_of(at); rank != MergeTable::kNever) heap.push_back(entry(rank, at));
    }
    std::ranges::make_heap(heap, std::greater());
    while (!heap.empty()) {
      std::ranges::pop_heap(heap, std::greater());
      const auto rank = uint32_t(heap.back() >> 32);
      const auto at = int32_t(uint32_t(heap.back()));
      heap.pop_back();
      Symbol& left = symbols[size_t(at)];
      if (left.id == kNoSymbol || left.rank != rank) continue;  // changed since it was put here
      Symbol& right = symbols[size_t(left.next)];
      left.id = merges_.find(left.id, right.id).id;
      left.end = right.end;
      left.next = right.next;
      right.id = kNoSymbol;
      if (left.next != kNoSymbol) symbols[size_t(left.next)].previous = at;
      for (const int32_t changed : {left.previous, at}) {
        if (changed == kNoSymbol) continue;
        if (const uint32_t now = rank_of(changed); now != MergeTable::kNever) {
          heap.push_back(entry(now, changed));
          std::ranges::push_heap(heap, std::greater());
        }
      }
    }
  }

  BpeOptions options_;
  bool raw_bytes_;
  bool bytes_only_ = false;  // every byte is a token and no two merge: pieces of any length are cheap
  MergeTable merges_;
  std::unordered_map<std::string, int32_t> ids_;  // in bytes when raw_bytes_
  std::array<int32_t, 256> first_bytes_;          // of tokens of one byte
  std::array<int32_t, 256> byte_tokens_{};
  int32_t unknown_ = kNoSymbol;
};

std::pair<std::string, std::string> read_merge(const JsonNode& node) {
  if (node.is_array()) {
    const std::vector<JsonNode> parts = node.items();
    if (parts.size() != 2) node.refuse(fmt::format("{} parts", parts.size()), "two");
    return {parts[0].string(), parts[1].string()};
  }
  const std::string text = node.string();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    node.refuse(fmt::format("'{}'", shortened(text, 60)), "two tokens with one space between them");
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

}  // namespace

BpeOptions BpeOptions::read(const JsonNode& node) {
  BpeOptions options;
  const auto dropout = node.find("dropout");
  if (dropout && dropout->number() != 0)
    dropout->refuse("dropout", "none: encoding must always give the same result");
  options.unknown = node.string_or("unk_token", "");
  options.continuing_prefix = node.string_or("continuing_subword_prefix", "");
  options.word_suffix = node.string_or("end_of_word_suffix", "");
  options.fuse_unknown = node.boolean_or("fuse_unk", false);
  options.byte_fallback = node.boolean_or("byte_fallback", false);
  options.ignore_merges = node.boolean_or("ignore_merges", false);
  if (const auto merges = node.find("merges")) {
    for (const JsonNode& merge : merges->items()) options.merges.push_back(read_merge(merge));
  }
  return options;
}

std::unique_ptr<const Model> make_bpe(const Vocabulary& vocabulary, const BpeOptions& options, bool raw_bytes,
                                      const std::string& where) {
  return std::make_unique<Bpe>(vocabulary, options, raw_bytes, where);
}

bool splits_at_mark(const Vocabulary& vocabulary, const BpeOptions& options, std::string_view mark) {
  if (options.ignore_merges || !options.continuing_prefix.empty() || !options.word_suffix.empty())
    return false;
  if (!vocabulary.find(std::string(mark))) return false;
  for (const auto& [text, id] : vocabulary.ids) {
    for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += mark.size()) {
      if (at > 0 && !std::string_view(text).substr(0, at).ends_with(mark)) return false;
    }
  }
  return true;
}

}  // namespace zeno::data::tokenizer
