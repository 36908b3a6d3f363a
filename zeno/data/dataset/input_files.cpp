#include "zeno/data/dataset/input_files.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/data/dataset/byte_source.h"
#include "zeno/data/dataset/compressed_source.h"
#include "zeno/data/token_file.h"

namespace zeno::data {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const Path& path) { return path.filename().string().starts_with('.'); }

// Files of a dataset's folder that tell about it.
bool is_description(const Path& path) {
  static constexpr std::array<std::string_view, 6> kNames{"dataset_info.json", "dataset_infos.json",
                                                          "dataset_dict.json", "state.json",
                                                          "metadata.json",     "SHA256SUMS"};
  static constexpr std::array<std::string_view, 6> kStems{"README",       "LICENSE", "LICENCE",
                                                          "DATASET_CARD", "NOTICE",  "CITATION"};
  const std::string name = path.filename().string(), stem = path.stem().string();
  const bool program = path.extension() == ".py" || path.extension() == ".sh";
  return program || std::ranges::find(kNames, name) != kNames.end() ||
         std::ranges::find(kStems, stem) != kStems.end();
}

void add_folder(const Path& folder, std::vector<Path>& out, std::vector<std::string>& notes) {
  for (const std::string& name : list_folder(folder)) {
    const Path path = folder / name;
    if (is_hidden(path)) continue;
    // A folder behind a link could be one that holds it.
    if (folder_exists(path)) {
      if (!fs::is_symlink(path)) add_folder(path, out, notes);
    } else if (is_description(path)) {
      notes.push_back(
          fmt::format("{} is ignored: its name is not that of a data file; name the file itself to use it",
                      path.string()));
    } else {
      out.push_back(path);
    }
  }
}

std::vector<Path> expand(const std::vector<Path>& paths, std::vector<std::string>& notes) {
  std::vector<Path> files;
  for (const Path& path : paths) {
    require(path_exists(path), ErrorKind::data, "[data] {}: no such file; check the path", path.string());
    if (!folder_exists(path)) {
      files.push_back(path);
      continue;
    }
    const size_t before = files.size();
    add_folder(path, files, notes);
    require(files.size() > before, ErrorKind::data, "[data] {}: got an empty folder, expected files in it",
            path.string());
  }
  return files;
}

std::string lower_extension(const Path& path) {
  std::string kind = path.extension().string();
  std::ranges::transform(kind, kind.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return kind;
}

// What looks like data to programs and is none to people.
void check_head(const Path& path, std::string_view head) {
  require(!head.starts_with("version https://git-lfs.github.com/spec/"), ErrorKind::data,
          "[data] {}: got a Git LFS pointer instead of the file itself; run `git lfs pull` in its repository",
          path.string());
  require(!head.starts_with("\xff\xfe") && !head.starts_with("\xfe\xff"), ErrorKind::data,
          "[data] {}: got UTF-16 text, expected UTF-8; convert the file, for example with iconv -f UTF-16 -t "
          "UTF-8",
          path.string());
}

// Formats that hold datasets too and are not read.
void refuse_foreign(const Path& path, std::string_view head) {
  using Foreign = std::pair<std::string_view, const char*>;
  static constexpr Foreign kArchives[] = {
      {"BZh91AY&SY", "bzip2"}, {"\xfd\x37zXZ", "xz"}, {"PK\x03\x04", "zip"}};
  for (const auto& [magic, name] : kArchives) {
    require(!head.starts_with(magic), ErrorKind::data,
            "[data] {}: {} files are not supported; unpack it, or compress it with gzip or zstd",
            path.string(), name);
  }
  require(!head.starts_with("ARROW1") && lower_extension(path) != ".arrow", ErrorKind::data,
          "[data] {}: Arrow files are not supported; write Parquet instead, for example with "
          "dataset.to_parquet(…)",
          path.string());
}

Compression compression_named(const Path& path) {
  const std::string kind = lower_extension(path);
  if (kind == ".gz") return Compression::gzip;
  return kind == ".zst" || kind == ".zstd" ? Compression::zstd : Compression::none;
}

// A name that says "compressed" must be right: a download may have been cut short or unpacked on its way.
void check_compression(const Path& path, std::string_view head) {
  const Compression named = compression_named(path);
  require(
      named == Compression::none || named == compression_of(head), ErrorKind::data,
      "[data] {}: does not start like a {} file; download it again, or rename it if it is already unpacked",
      path.string(), path.extension().string());
}

FileKind kind_of(const Path& path, std::string_view head, DataFormat format) {
  const bool compressed = compression_named(path) != Compression::none;
  const std::string name = lower_extension(compressed ? path.stem() : path);
  const bool parquet = head.starts_with("PAR1") || name == ".parquet";
  require(!parquet || !compressed, ErrorKind::data,
          "[data] {}: Parquet files are read from the end, and this one is compressed as a whole; unpack it "
          "first",
          path.string());
  if (parquet) return FileKind::parquet;
  if (name == ".json" || name == ".jsonl" || name == ".ndjson") return FileKind::json;
  if (name == ".csv") return FileKind::csv;
  if (name == ".tsv") return FileKind::tsv;
  if (format == DataFormat::automatic) return FileKind::plain_text;
  // A format of records is named: only of text it is not known whether the file is JSON.
  if (head.starts_with("\xef\xbb\xbf")) head.remove_prefix(3);
  const size_t sign = head.find_first_not_of(" \t\r\n");
  const bool object = sign != std::string_view::npos && head[sign] == '{';
  return format != DataFormat::text || object ? FileKind::json : FileKind::plain_text;
}

}  // namespace

InputFiles find_input_files(const DatasetSpec& spec) {
  require(!spec.paths.empty(), ErrorKind::usage,
          "[data] got no file to train on, expected at least one; give --data FILE");
  InputFiles files;
  for (const Path& path : expand(spec.paths, files.notes)) {
    const File file = File::open(path);
    const uint64_t bytes = file.size();
    std::string raw(size_t(std::min<uint64_t>(bytes, 4096)), '\0');
    file.read_at(raw.data(), raw.size(), 0);
    check_head(path, raw);
    refuse_foreign(path, raw);
    if (path.extension() == ".zt" || is_token_file(path)) {
      files.token_files.push_back(path);
      continue;
    }
    if (bytes > 0) check_compression(path, raw);
    const std::string head = first_bytes(path, 4096);
    check_head(path, head);
    if (head.empty()) {
      files.notes.push_back(fmt::format("{} is empty and is ignored", path.string()));
    } else {
      files.to_build.push_back({path, kind_of(path, head, spec.format), bytes});
    }
  }
  return files;
}

}  // namespace zeno::data
