// A file of tokens (docs/token_file.md): a 64-byte header, then ids of 2 or 4 bytes. The reader maps the file
// and owns the mapping; after opening, every call is const and safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "zeno/base/file.h"

namespace zeno::data {

class TokenFile {
 public:
  // Checks the header against the file: magic, version, width, and a count that fills the file exactly.
  explicit TokenFile(const Path& path);

  const Path& path() const { return path_; }
  int64_t count() const { return count_; }
  int64_t vocab_size() const { return vocab_size_; }
  // The id that ends a document, if the file has one.
  std::optional<int32_t> eos() const { return eos_; }

  // Calls f(std::span<const uint16_t>) or f(std::span<const uint32_t>) with all tokens.
  template <class F>
  decltype(auto) visit(F&& f) const {
    const std::byte* data = mapping_.bytes().data() + kHeaderBytes;
    if (width_ == 2) return f(std::span(reinterpret_cast<const uint16_t*>(data), size_t(count_)));
    return f(std::span(reinterpret_cast<const uint32_t*>(data), size_t(count_)));
  }
  // Tokens begin .. begin + out.size(); the ids must have been checked to fit (TokenSource does).
  void copy(int64_t begin, std::span<int32_t> out) const;

 private:
  static constexpr size_t kHeaderBytes = 64;
  Path path_;
  MappedFile mapping_;
  uint32_t width_ = 0;
  int64_t count_ = 0;
  int64_t vocab_size_ = 0;
  std::optional<int32_t> eos_;
};

// Does the file start with the magic of a token file?
bool is_token_file(const Path& path);

struct TokenFileInfo {
  int64_t vocab_size = 0;  // decides the width: 2 bytes up to 65536
  std::optional<int32_t> eos;
};
// Writes or replaces the file in one step. Ids outside the vocabulary are an Error(data).
void write_token_file(const Path& path, const TokenFileInfo& info, std::span<const int32_t> tokens);

}  // namespace zeno::data
