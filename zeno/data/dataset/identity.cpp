#include "zeno/data/dataset/identity.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <iterator>

#include "zeno/base/disk_operation.h"
#include "zeno/base/error.h"
#include "zeno/data/chat/chat_template.h"

namespace zeno::data {
namespace {

// Raised whenever the same input would give other tokens or other files.
constexpr int kBuilderVersion = 2;

std::string hash_text(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

void add_input(std::string& out, const InputFile& file) {
  const DiskOperation waiting("inspecting", file.path);
  struct stat info;
  require(::stat(file.path.c_str(), &info) == 0, ErrorKind::io, "[data] cannot inspect {}",
          file.path.string());
  const Path path = std::filesystem::absolute(file.path).lexically_normal();
  fmt::format_to(std::back_inserter(out), "file {} {} {}.{:09}\n", path.string(), info.st_size,
                 info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

void add_content(std::string& out, const Path& path) {
  if (!file_exists(path)) return;
  fmt::format_to(std::back_inserter(out), "content {} {}\n", path.filename().string(),
                 hash_text(read_file(path)));
}

}  // namespace

DatasetIdentity identify_dataset(const DatasetSpec& spec, const InputFiles& files) {
  std::string text = fmt::format("zeno dataset {}\n", kBuilderVersion);
  for (const InputFile& file : files.to_build) add_input(text, file);
  for (const char* name : {"tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json",
                           "special_tokens_map.json", "chat_template.jinja", "chat_template.json"}) {
    add_content(text, spec.model / name);
  }
  if (!spec.chat_template.empty()) {  // a preset may change with the version of Zeno, a file at any time
    const std::string source = ChatTemplate::open(spec.model, spec.chat_template).source();
    fmt::format_to(std::back_inserter(text), "template {}\n", hash_text(source));
  }
  fmt::format_to(std::back_inserter(text),
                 "format {}, loss on {}, template '{}' {}, vocabulary {}, skip bad lines {}, samples {}\n",
                 int(spec.format), int(spec.loss_on), spec.chat_template, spec.template_extra,
                 spec.vocab_size, spec.skip_bad_lines, spec.max_samples);
  if (!spec.chat_date.empty()) fmt::format_to(std::back_inserter(text), "chat date {}\n", spec.chat_date);
  for (const auto& [field, column] : spec.columns) {
    fmt::format_to(std::back_inserter(text), "column {} = {}\n", field, column);
  }
  return {text, spec.cache / "datasets" / hash_text(text).substr(0, 24)};
}

}  // namespace zeno::data
