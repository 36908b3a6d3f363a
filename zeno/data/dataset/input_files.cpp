#include "zeno/data/dataset/input_files.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/data/token_file.h"

namespace zeno::data {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const Path& path) { return path.filename().string().starts_with('.'); }

void add_folder(const Path& folder, std::vector<Path>& out) {
  for (const std::string& name : list_folder(folder)) {
    const Path path = folder / name;
    if (is_hidden(path)) continue;
    std::error_code ignored;
    // A folder behind a link could be one that holds it.
    if (fs::is_directory(path, ignored)) {
      if (!fs::is_symlink(path, ignored)) add_folder(path, out);
    } else {
      out.push_back(path);
    }
  }
}

std::vector<Path> expand(const std::vector<Path>& paths) {
  std::vector<Path> files;
  for (const Path& path : paths) {
    std::error_code ignored;
    require(fs::exists(path, ignored), ErrorKind::data, "[data] {}: no such file; check the path",
            path.string());
    if (!fs::is_directory(path, ignored)) {
      files.push_back(path);
      continue;
    }
    const size_t before = files.size();
    add_folder(path, files);
    require(files.size() > before, ErrorKind::data, "[data] {}: got an empty folder, expected files in it",
            path.string());
  }
  return files;
}

// The first byte that is no space, after a byte order mark; 0: there is none near the start.
char first_sign(const Path& path) {
  const File file = File::open(path);
  std::array<char, 4096> head;
  const size_t size = size_t(std::min<uint64_t>(head.size(), file.size()));
  file.read_at(head.data(), size, 0);
  std::string_view text(head.data(), size);
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const size_t at = text.find_first_not_of(" \t\r\n");
  return at == std::string_view::npos ? '\0' : text[at];
}

bool has_json_name(const Path& path) {
  const std::string kind = path.extension().string();
  return kind == ".json" || kind == ".jsonl" || kind == ".ndjson";
}

bool is_json(const Path& path, DataFormat format) {
  if (has_json_name(path)) return true;
  // A format of lines is named: only of text it is not known whether the file is JSON.
  if (format == DataFormat::automatic) return false;
  return format != DataFormat::text || first_sign(path) == '{';
}

}  // namespace

InputFiles find_input_files(const DatasetSpec& spec) {
  require(!spec.paths.empty(), ErrorKind::usage,
          "[data] got no file to train on, expected at least one; give --data FILE");
  InputFiles files;
  for (const Path& path : expand(spec.paths)) {
    const uint64_t bytes = File::open(path).size();
    if (path.extension() == ".zt" || is_token_file(path)) {
      files.token_files.push_back(path);
    } else if (bytes == 0) {
      log_warning("[data] {} is empty and is left out", path.string());
    } else if (!is_json(path, spec.format)) {
      files.to_build.push_back({path, FileKind::plain_text, bytes});
    } else {
      const FileKind kind = first_sign(path) == '[' ? FileKind::json_array : FileKind::json_lines;
      files.to_build.push_back({path, kind, bytes});
    }
  }
  return files;
}

}  // namespace zeno::data
