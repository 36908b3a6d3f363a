// The tokens of a dataset on disk (docs/dataset_cache.md): a folder of raw columns and a manifest, which is
// written last and makes the folder a cache.
//
// CacheWriter owns the open columns and one buffer each: memory does not grow with the data. CachedSamples
// owns the mappings; after opening, every call is const and safe from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "zeno/base/file.h"

namespace zeno::data {

// A tokenised sample. learned[i]: is token i to be predicted?
struct Sample {
  std::vector<int32_t> ids;
  std::vector<uint8_t> learned;
  bool operator==(const Sample&) const = default;
};

// One input file as the build saw it. A record may hold several samples, or none that can be trained on.
struct FileReport {
  std::string path;
  int64_t records = 0;  // that could be read
  int64_t samples = 0, tokens = 0, learned = 0;
  int64_t dropped = 0;  // records with nothing to train on
  int64_t bad = 0;      // records that could not be used, with --skip-bad-lines
};

// What a build saw; kept in the manifest, so that a run from the cache can tell it too.
struct BuildReport {
  int64_t samples = 0, tokens = 0, learned = 0;
  int64_t records = 0;  // that could be read; 0 where all is plain text
  int64_t nothing_to_learn = 0;
  std::map<std::string, int64_t> bad;      // reason → count
  std::map<std::string, int64_t> unused;   // unused field with a value → number of records that have it
  std::map<std::string, int64_t> remarks;  // what the chat template does to the data → times
  std::vector<FileReport> files;           // in the order they were read
  bool whole_texts = true;                 // plain text only: no sample has a shape of its own
  std::string layout;                      // what wrote the chats, for the log
};

// Where the documents of one input file begin.
struct CachedFile {
  std::string path;
  int64_t first_document = 0;
};

class CacheWriter {
 public:
  // Writes into `folder`, which exists. Ids of a vocabulary up to 65536 take 2 bytes.
  CacheWriter(Path folder, int64_t vocab_size);
  ~CacheWriter();
  CacheWriter(CacheWriter&&) = delete;

  void begin_file(const std::string& path);
  // A document of `line` (0: the whole file); more parts may follow before the next begin_document.
  void begin_document(uint32_t line);
  void append(const Sample& part);
  int64_t documents() const;
  int64_t tokens() const;
  // Puts all columns on the disk, then the manifest.
  void commit(const std::string& identity, const BuildReport& report);

 private:
  struct Columns;
  std::unique_ptr<Columns> columns_;
};

class CachedSamples {
 public:
  // Throws Error(data) if the folder is not a complete cache of `identity`: the manifest's version and
  // identity, the size of every column and the checksum of the index are compared. A cache of a newer Zeno is
  // a NewerVersion.
  CachedSamples(const Path& folder, const std::string& identity);

  int64_t tokens() const { return report_.tokens; }
  int64_t documents() const { return int64_t(starts_.size()) - 1; }
  std::span<const int64_t> document_starts() const { return starts_; }  // one more than documents
  const BuildReport& report() const { return report_; }
  const std::vector<CachedFile>& files() const { return files_; }
  // Checksums of the columns that samples are made of, as a text.
  std::string checksums() const { return checksums_[0] + checksums_[1] + checksums_[2]; }
  // Compares every column with its checksum, where they are small enough to be read in a moment; of larger
  // ones, nothing. Error(data) naming the first damage.
  void verify_small() const;

  void copy(int64_t begin, std::span<int32_t> out) const;
  void copy_learned(int64_t begin, std::span<uint8_t> out) const;
  // "file:line" of a document.
  std::string origin(int64_t document) const;

 private:
  Path folder_;
  BuildReport report_;
  std::vector<CachedFile> files_;
  std::vector<MappedFile> mappings_;    // of the columns below
  std::vector<std::string> checksums_;  // as the manifest has them, in the same order
  uint32_t width_ = 0;                  // bytes of a token
  std::span<const std::byte> tokens_;
  std::span<const uint64_t> learned_;  // a bit per token
  std::span<const int64_t> starts_;
  std::span<const uint32_t> lines_;
};

// The exclusive right to write the cache in a folder, held by one thread of one process; released by the
// system when the process dies. Makes the folder.
class CacheLock {
 public:
  explicit CacheLock(const Path& folder);  // waits; says so in the log
  CacheLock(CacheLock&&) = delete;
  // Removes everything in the folder, the folder too unless it is to be `kept`.
  void clear(bool keep);

 private:
  Path folder_;
  File file_;
};

bool is_complete_cache(const Path& folder);  // has it a manifest?
// Removes folders below `root` that a killed build left behind.
void remove_unfinished_caches(const Path& root);

}  // namespace zeno::data
