#include "zeno/data/source.h"

#include <algorithm>
#include <string>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/base/rng.h"

namespace zeno::data {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t(1) << 36;

// The largest id first, in a loop that vectorises; only a file that fails is searched for the position.
template <class T>
void check_vocabulary(std::span<const T> ids, int64_t vocab_size, const Path& path) {
  uint32_t largest = 0;
  for (const T id : ids) largest = std::max(largest, uint32_t(id));
  if (ids.empty() || int64_t(largest) < vocab_size) return;
  const auto bad = std::ranges::find_if(ids, [&](T id) { return int64_t(uint32_t(id)) >= vocab_size; });
  fail(ErrorKind::data,
       "[data] {}: token at position {}: got id {}, expected below the model's vocabulary size {}; tokenise "
       "the data "
       "with the tokenizer of this model",
       path.string(), bad - ids.begin(), uint32_t(*bad), vocab_size);
}

void check_readable(const Path& path) {
  std::error_code ignored;
  require(std::filesystem::exists(path, ignored), ErrorKind::data, "[data] {}: no such file; check the path",
          path.string());
  require(!std::filesystem::is_directory(path, ignored), ErrorKind::data,
          "[data] {}: got a folder, expected a file; name the files in it", path.string());
  const std::string kind = path.extension().string();
  require(kind != ".jsonl" && kind != ".json", ErrorKind::data,
          "[data] {}: got {} data, expected plain text or a token file; chat and JSON lines are not read "
          "yet: tokenise "
          "them beforehand into a token file (docs/token_file.md)",
          path.string(), kind);
}

// The token after (before, last) in an alphabet of n symbols.
int64_t next_symbol(uint64_t seed, int64_t n, int64_t before, int64_t last, uint64_t bits) {
  constexpr int64_t kClasses = 8;  // the older token counts by its class only, so that there is less to learn
  const uint64_t choice = bits & 7;
  if (choice < 4) return int64_t(random_bits(seed, 1, uint64_t(last)) % uint64_t(n));
  if (choice < 7)
    return int64_t(random_bits(seed, 2 + uint64_t(before % kClasses), uint64_t(last)) % uint64_t(n));
  const double u = double(bits >> 11) * 0x1p-53;
  return int64_t(u * u * double(n));  // skewed: low symbols are more frequent
}

void generate_document(const GeneratedData& options, int64_t document, std::span<int32_t> out) {
  const int64_t symbols = options.vocab_size - (options.eos ? 1 : 0);
  const uint64_t stream = mix64(uint64_t(document) ^ 0x5eed);
  int64_t before = int64_t(random_bits(options.seed, stream, 0) % uint64_t(symbols)), last = before;
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t symbol =
        next_symbol(options.seed, symbols, before, last, random_bits(options.seed, stream, i + 1));
    before = std::exchange(last, symbol);
    out[i] = int32_t(symbol) + (options.eos && symbol >= *options.eos ? 1 : 0);
  }
  if (options.eos && !out.empty()) out.back() = *options.eos;
}

}  // namespace

TokenSource TokenSource::open(std::span<const Path> paths, int64_t vocab_size, const Tokenizer* tokenizer) {
  require(!paths.empty(), ErrorKind::usage,
          "[data] got no file to train on, expected at least one; give --data FILE");
  TokenSource source;
  for (const Path& path : paths) {
    check_readable(path);
    if (is_token_file(path) || path.extension() == ".zt") {
      source.add_token_file(path, vocab_size);
    } else {
      source.add_text_file(path, vocab_size, tokenizer);
    }
  }
  require(source.tokens_ > 0, ErrorKind::data,
          "[data] {}{}: got no tokens, expected some; every file is empty", paths[0].string(),
          paths.size() > 1 ? ", …" : "");
  return source;
}

void TokenSource::add_token_file(const Path& path, int64_t vocab_size) {
  TokenFile file(path);
  file.visit([&](auto ids) { check_vocabulary(ids, vocab_size, path); });
  if (file.count() == 0) return log_warning("[data] {} is empty and is left out", path.string());
  starts_.push_back(tokens_);
  if (file.eos()) {
    file.visit([&](auto ids) {
      const auto eos = typename decltype(ids)::value_type(*file.eos());
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        if (ids[i] == eos) starts_.push_back(tokens_ + int64_t(i) + 1);
      }
    });
  }
  const int64_t count = file.count();
  parts_.push_back({tokens_, count, std::move(file)});
  tokens_ += count;
}

void TokenSource::add_text_file(const Path& path, int64_t vocab_size, const Tokenizer* tokenizer) {
  require(tokenizer != nullptr, ErrorKind::usage,
          "[data] {}: got text, expected a token file: there is no tokenizer to read text with",
          path.string());
  const std::string text = read_file(path, kMaxTextBytes);
  if (text.empty()) return log_warning("[data] {} is empty and is left out", path.string());
  const size_t zero = text.find('\0');
  require(
      zero == std::string::npos, ErrorKind::data,
      "[data] {}: got a zero byte at {}, expected plain text or a token file; binary formats are not read",
      path.string(), zero);
  std::vector<int32_t> ids = tokenizer->encode(text);
  if (tokenizer->eos()) ids.push_back(*tokenizer->eos());
  check_vocabulary(std::span<const int32_t>(ids), vocab_size, path);
  const int64_t count = int64_t(ids.size());
  starts_.push_back(tokens_);
  parts_.push_back({tokens_, count, std::move(ids)});
  tokens_ += count;
}

TokenSource TokenSource::generated(const GeneratedData& options) {
  const int64_t least = options.eos ? 3 : 2;
  require(options.vocab_size >= least, ErrorKind::usage,
          "[data] generated: got a vocabulary of {}, expected at least {}", options.vocab_size, least);
  require(options.tokens >= 1 && options.document_tokens >= 2, ErrorKind::usage,
          "[data] generated: got {} tokens in documents of {}, expected at least 1 and 2", options.tokens,
          options.document_tokens);
  require(!options.eos || (*options.eos >= 0 && *options.eos < options.vocab_size), ErrorKind::usage,
          "[data] generated: got eos id {}, expected below {}", options.eos.value_or(-1), options.vocab_size);
  TokenSource source;
  source.tokens_ = options.tokens;
  std::vector<int32_t> ids(size_t(options.tokens));
  for (int64_t begin = 0; begin < options.tokens; begin += options.document_tokens) {
    const int64_t count = std::min(options.document_tokens, options.tokens - begin);
    generate_document(options, source.documents(), std::span(ids).subspan(size_t(begin), size_t(count)));
    source.starts_.push_back(begin);
  }
  source.parts_.push_back({0, options.tokens, std::move(ids)});
  return source;
}

void TokenSource::copy(int64_t begin, std::span<int32_t> out) const {
  ensure(begin >= 0 && begin + int64_t(out.size()) <= tokens_,
         "[data] got range {}+{}, expected within {} tokens", begin, out.size(), tokens_);
  auto part = std::ranges::upper_bound(parts_, begin, {}, &Part::begin) - 1;
  for (size_t done = 0; done < out.size(); ++part) {
    const int64_t offset = begin + int64_t(done) - part->begin;
    const auto piece = out.subspan(done, std::min(out.size() - done, size_t(part->count - offset)));
    if (const auto* file = std::get_if<TokenFile>(&part->tokens)) {
      file->copy(offset, piece);
    } else {
      std::ranges::copy_n(std::get<0>(part->tokens).begin() + offset, int64_t(piece.size()), piece.begin());
    }
    done += piece.size();
  }
}

size_t TokenSource::host_bytes() const {
  size_t bytes = starts_.capacity() * sizeof(int64_t);
  for (const Part& part : parts_) {
    if (const auto* ids = std::get_if<0>(&part.tokens)) bytes += ids->capacity() * sizeof(int32_t);
  }
  return bytes;
}

}  // namespace zeno::data
