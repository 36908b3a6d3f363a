#include "zeno/data/dataset/cache.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "zeno/base/disk_operation.h"
#include "zeno/base/error.h"
#include "zeno/base/json_limits.h"
#include "zeno/base/math.h"
#include "zeno/base/newer_version.h"
#include "zeno/base/utf8.h"

namespace zeno::data {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "columns are little-endian and mapped as they are");
constexpr int kCacheVersion = 2;
constexpr const char* kManifest = "manifest.json";
constexpr int64_t kBitsPerWord = 64;
constexpr std::array kColumns{"tokens", "learned", "index", "lines"};

uint32_t width_of(int64_t vocab_size) { return vocab_size <= 65536 ? 2 : 4; }
int64_t words_of(int64_t bits) { return div_ceil(bits, kBitsPerWord); }

struct FreeHash {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

// An array on disk that grows at its end.
class Column {
 public:
  explicit Column(const Path& path) : file_(File::create(path)) { XXH3_64bits_reset(hash_.get()); }

  template <class T>
  void push(T value) {
    const size_t at = buffer_.size();
    buffer_.resize(at + sizeof(T));
    std::memcpy(buffer_.data() + at, &value, sizeof(T));
    if (buffer_.size() >= kBufferBytes) flush();
  }
  uint64_t bytes() const { return written_ + buffer_.size(); }
  // The checksum, once everything is on the disk.
  uint64_t finish() {
    flush();
    file_.sync();
    file_.close();
    return XXH3_64bits_digest(hash_.get());
  }

 private:
  static constexpr size_t kBufferBytes = size_t(1) << 20;

  void flush() {
    XXH3_64bits_update(hash_.get(), buffer_.data(), buffer_.size());
    file_.write_at(buffer_.data(), buffer_.size(), written_);
    written_ += buffer_.size();
    buffer_.clear();
  }

  File file_;
  std::vector<std::byte> buffer_;
  uint64_t written_ = 0;
  std::unique_ptr<XXH3_state_t, FreeHash> hash_{XXH3_createState()};
};

Json column_json(Column& column) {
  const uint64_t bytes = column.bytes();
  return {{"bytes", bytes}, {"xxh3", fmt::format("{:016x}", column.finish())}};
}

Json report_json(const BuildReport& report) {
  Json files = Json::array();
  for (const FileReport& file : report.files) {
    files.push_back({{"path", file.path},
                     {"records", file.records},
                     {"samples", file.samples},
                     {"tokens", file.tokens},
                     {"learned", file.learned},
                     {"dropped", file.dropped},
                     {"bad", file.bad}});
  }
  return {{"samples", report.samples},
          {"tokens", report.tokens},
          {"learned", report.learned},
          {"records", report.records},
          {"bad", report.bad},
          {"nothing_to_learn", report.nothing_to_learn},
          {"unused", report.unused},
          {"remarks", report.remarks},
          {"whole_texts", report.whole_texts},
          {"layout", report.layout},
          {"files", files}};
}

BuildReport report_of(const Json& json) {
  BuildReport report;
  json.at("samples").get_to(report.samples);
  json.at("tokens").get_to(report.tokens);
  json.at("learned").get_to(report.learned);
  json.at("records").get_to(report.records);
  json.at("nothing_to_learn").get_to(report.nothing_to_learn);
  for (const auto& [reason, count] : json.at("bad").items()) report.bad[reason] = count.get<int64_t>();
  for (const auto& [field, count] : json.at("unused").items()) report.unused[field] = count.get<int64_t>();
  for (const auto& [remark, count] : json.at("remarks").items())
    report.remarks[remark] = count.get<int64_t>();
  for (const Json& file : json.at("files")) {
    report.files.push_back({.path = file.at("path").get<std::string>(),
                            .records = file.at("records").get<int64_t>(),
                            .samples = file.at("samples").get<int64_t>(),
                            .tokens = file.at("tokens").get<int64_t>(),
                            .learned = file.at("learned").get<int64_t>(),
                            .dropped = file.at("dropped").get<int64_t>(),
                            .bad = file.at("bad").get<int64_t>()});
  }
  json.at("whole_texts").get_to(report.whole_texts);
  json.at("layout").get_to(report.layout);
  return report;
}

// Paths in an identity need not be UTF-8, which JSON cannot hold: a hash is compared instead.
std::string key_of(const std::string& identity) {
  return fmt::format("{:016x}", XXH3_64bits(identity.data(), identity.size()));
}

Json read_manifest(const Path& folder) {
  constexpr uint64_t kMostBytes = uint64_t(256) << 20;  // it names every file of the data
  const Path path = folder / kManifest;
  const std::string text = read_file(path, kMostBytes);
  check_json_limits(text, fmt::format("[dataset] {}: damaged", path.string()),
                    {.values = 4'000'000, .nodes = 4'000'000});
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::data, "[dataset] {}: damaged: not JSON", path.string());
  }
}

// Maps a column of `count` values; the mapping goes to `keep`.
template <class T>
std::span<const T> map_column(const Path& folder, const char* name, uint64_t count,
                              std::vector<MappedFile>& keep) {
  const Path path = folder / name;
  require(file_exists(path), ErrorKind::data, "[dataset] {}: damaged: missing", path.string());
  const auto bytes = keep.emplace_back(path).bytes();
  require(bytes.size() / sizeof(T) == count && bytes.size() % sizeof(T) == 0, ErrorKind::data,
          "[dataset] {}: damaged: got {} bytes, expected {} values of {} bytes", path.string(), bytes.size(),
          count, sizeof(T));
  return {reinterpret_cast<const T*>(bytes.data()), size_t(count)};
}

template <class T>
void widen(std::span<const std::byte> tokens, size_t begin, std::span<int32_t> out) {
  const T* ids = reinterpret_cast<const T*>(tokens.data()) + begin;
  std::transform(ids, ids + out.size(), out.begin(), [](T id) { return int32_t(id); });
}

}  // namespace

struct CacheWriter::Columns {
  Columns(Path in, int64_t vocab_size)
      : folder(std::move(in)),
        width(width_of(vocab_size)),
        tokens(folder / "tokens.bin"),
        learned(folder / "learned.bin"),
        index(folder / "index.bin"),
        lines(folder / "lines.bin") {}

  Path folder;
  uint32_t width;
  Column tokens, learned, index, lines;
  std::vector<CachedFile> files;
  int64_t documents = 0, count = 0;
  uint64_t word = 0;  // the bits that do not fill a word yet
};

CacheWriter::CacheWriter(Path folder, int64_t vocab_size)
    : columns_(std::make_unique<Columns>(std::move(folder), vocab_size)) {}
CacheWriter::~CacheWriter() = default;

int64_t CacheWriter::documents() const { return columns_->documents; }
int64_t CacheWriter::tokens() const { return columns_->count; }

void CacheWriter::begin_file(const std::string& path) {
  columns_->files.push_back({path, columns_->documents});
}

void CacheWriter::begin_document(uint32_t line) {
  columns_->index.push(columns_->count);
  columns_->lines.push(line);
  ++columns_->documents;
}

void CacheWriter::append(const Sample& part) {
  ensure(part.learned.size() == part.ids.size(), "[dataset] got {} ids and {} flags", part.ids.size(),
         part.learned.size());
  Columns& c = *columns_;
  for (size_t i = 0; i < part.ids.size(); ++i) {
    if (c.width == 2) {
      c.tokens.push(uint16_t(part.ids[i]));
    } else {
      c.tokens.push(uint32_t(part.ids[i]));
    }
    const int64_t bit = c.count++ % kBitsPerWord;
    c.word |= uint64_t(part.learned[i] != 0) << bit;
    if (bit == kBitsPerWord - 1) c.learned.push(std::exchange(c.word, 0));
  }
}

void CacheWriter::commit(const std::string& identity, const BuildReport& report) {
  Columns& c = *columns_;
  if (c.count % kBitsPerWord != 0) c.learned.push(std::exchange(c.word, 0));
  c.index.push(c.count);
  Json files = Json::array();
  for (const CachedFile& file : c.files) {
    files.push_back({{"path", file.path}, {"first_document", file.first_document}});
  }
  const Json manifest{{"format", "zeno dataset"},
                      {"version", kCacheVersion},
                      {"key", key_of(identity)},
                      {"identity", identity},
                      {"documents", c.documents},
                      {"width", c.width},
                      {"columns",
                       {{"tokens", column_json(c.tokens)},
                        {"learned", column_json(c.learned)},
                        {"index", column_json(c.index)},
                        {"lines", column_json(c.lines)}}},
                      {"report", report_json(report)},
                      {"files", files}};
  sync_folder(c.folder);
  // Names of files need not be UTF-8; what is not is shown by a replacement character.
  replace_file(c.folder / kManifest, manifest.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

CachedSamples::CachedSamples(const Path& folder, const std::string& identity) try : folder_(folder) {
  const Json manifest = read_manifest(folder);
  if (const Json& version = manifest.at("version"); version.is_number_integer() && version > kCacheVersion)
    throw NewerVersion(fmt::format("[dataset] {}", folder.string()), "dataset cache", version.get<int64_t>(),
                       kCacheVersion, "another --cache folder");
  require(manifest.at("version") == kCacheVersion && manifest.at("key") == key_of(identity), ErrorKind::data,
          "[dataset] {}: damaged: the manifest is of another dataset", folder.string());
  report_ = report_of(manifest.at("report"));
  const int64_t documents = manifest.at("documents").get<int64_t>();
  width_ = manifest.at("width").get<uint32_t>();
  const bool sane = documents >= 0 && report_.tokens >= 0 && (width_ == 2 || width_ == 4);
  require(sane, ErrorKind::data, "[dataset] {}: damaged: got {} documents, {} tokens of {} bytes",
          folder.string(), documents, report_.tokens, width_);
  const auto tokens = uint64_t(report_.tokens), starts = uint64_t(documents) + 1;
  tokens_ = map_column<std::byte>(folder, "tokens.bin", tokens * width_, mappings_);
  learned_ = map_column<uint64_t>(folder, "learned.bin", uint64_t(words_of(report_.tokens)), mappings_);
  starts_ = map_column<int64_t>(folder, "index.bin", starts, mappings_);
  lines_ = map_column<uint32_t>(folder, "lines.bin", uint64_t(documents), mappings_);
  const DiskOperation waiting("reading", folder_);
  const std::string checksum = fmt::format("{:016x}", XXH3_64bits(starts_.data(), starts_.size_bytes()));
  require(manifest.at("columns").at("index").at("xxh3") == checksum, ErrorKind::data,
          "[dataset] {}: damaged: the checksum of index.bin is {}", folder.string(), checksum);
  require(starts_.front() == 0 && starts_.back() == report_.tokens, ErrorKind::data,
          "[dataset] {}: damaged: the index ends at {} of {} tokens", folder.string(), starts_.back(),
          report_.tokens);
  for (const char* name : kColumns)
    checksums_.push_back(manifest.at("columns").at(name).at("xxh3").get<std::string>());
  for (const Json& file : manifest.at("files")) {
    files_.push_back({file.at("path").get<std::string>(), file.at("first_document").get<int64_t>()});
  }
} catch (const nlohmann::json::exception& error) {
  fail(ErrorKind::data, "[dataset] {}: damaged manifest: {}", folder.string(), shortened(error.what(), 200));
}

void CachedSamples::verify_small() const {
  constexpr size_t kSmall = size_t(256) << 20;
  size_t bytes = 0;
  for (const MappedFile& column : mappings_) bytes += column.bytes().size();
  if (bytes > kSmall) return;
  for (size_t i = 0; i < mappings_.size(); ++i) {
    const Path path = folder_ / fmt::format("{}.bin", kColumns[i]);
    const DiskOperation waiting("reading", path);
    const std::span<const std::byte> column = mappings_[i].bytes();
    const std::string checksum = fmt::format("{:016x}", XXH3_64bits(column.data(), column.size()));
    require(checksum == checksums_[i], ErrorKind::data, "[dataset] {}: damaged: got checksum {}, expected {}",
            path.string(), checksum, checksums_[i]);
  }
}

void CachedSamples::copy(int64_t begin, std::span<int32_t> out) const {
  ensure(begin >= 0 && begin + int64_t(out.size()) <= tokens(), "[dataset] got tokens {}+{} of {}", begin,
         out.size(), tokens());
  const DiskOperation waiting("reading", folder_);  // the pages may have to come first
  if (width_ == 2) return widen<uint16_t>(tokens_, size_t(begin), out);
  widen<uint32_t>(tokens_, size_t(begin), out);
}

void CachedSamples::copy_learned(int64_t begin, std::span<uint8_t> out) const {
  const DiskOperation waiting("reading", folder_);
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t bit = uint64_t(begin) + i;
    out[i] = uint8_t(learned_[bit / kBitsPerWord] >> (bit % kBitsPerWord) & 1);
  }
}

std::string CachedSamples::origin(int64_t document) const {
  const auto file = std::ranges::upper_bound(files_, document, {}, &CachedFile::first_document) - 1;
  const uint32_t line = lines_[size_t(document)];
  return line == 0 ? file->path : fmt::format("{}:{}", file->path, line);
}

}  // namespace zeno::data
