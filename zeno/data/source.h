// What a run trains on: one stream of tokens cut into documents, with a mark on each token that is trained. A
// document is a sample: a chat, a completion, a text file, a piece of a token file.
//
// Owns generated tokens, or the mappings of a dataset cache and of token files, so data may be larger than
// memory. Immutable after construction: share it between threads and ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "zeno/data/dataset/cache.h"
#include "zeno/data/dataset/options.h"
#include "zeno/data/generated.h"
#include "zeno/data/token_file.h"

namespace zeno::data {

class TokenSource {
 public:
  // The samples of the cache that prepare_dataset(spec) has made, then those of token files.
  static TokenSource open(const DatasetSpec& spec);
  static TokenSource generated(const GeneratedData& options);
  // From memory; for tests.
  static TokenSource of(const std::vector<Sample>& samples);

  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return int64_t(starts_.size()) - 1; }
  // Where each document begins in the stream, and as one more the end of the stream.
  std::span<const int64_t> document_starts() const { return starts_; }
  // Nothing but plain text and token files: samples have no shape that a window would cut.
  bool whole_texts() const { return whole_texts_; }

  // Tokens begin .. begin + out.size() of the stream.
  void copy(int64_t begin, std::span<int32_t> out) const;
  // The same range: 1 if the token is trained.
  void copy_learned(int64_t begin, std::span<uint8_t> out) const;
  // A hash of all tokens and marks, as caches know theirs; of token files, of where documents begin. Reads no
  // tokens but those in memory.
  uint64_t contents() const;
  // Where a document comes from: file and line, as far as known.
  std::string origin(int64_t document) const;
  // The files that documents come from, in order; empty where all is from memory.
  std::vector<CachedFile> files() const;
  // What building the cache saw; null where there is none.
  const BuildReport* report() const;
  // Bytes of host memory this object holds (mapped files not counted).
  size_t host_bytes() const;

 private:
  struct Part {
    int64_t begin = 0, count = 0, first_document = 0;
    std::variant<Sample, TokenFile, CachedSamples> tokens;
  };
  TokenSource() = default;
  void add_token_file(const Path& path, int64_t vocab_size);
  void add_cache(CachedSamples cache);
  void add_memory(Sample tokens, std::span<const int64_t> starts);
  void finish();
  template <class F>
  void for_each_part(int64_t begin, size_t count, F&& f) const;

  int64_t tokens_ = 0;
  bool whole_texts_ = true;
  std::vector<int64_t> own_starts_;  // not used where all is one cache: the mapped index serves
  std::span<const int64_t> starts_;
  std::vector<Part> parts_;
};

}  // namespace zeno::data
