#include "zeno/model/export.h"

#include <algorithm>
#include <filesystem>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/device/ledger.h"
#include "zeno/kernels/master_rest.h"
#include "zeno/model/file_map.h"

namespace zeno::model {
namespace {

std::vector<checkpoint::TensorSpec> specs_of(const std::vector<nn::Parameter>& table, DType dtype) {
  std::vector<checkpoint::TensorSpec> specs;
  for (const nn::Parameter& parameter : table) {
    for (const FilePart& part : file_parts(parameter)) specs.push_back({part.slice->name, dtype, part.shape});
  }
  return specs;
}

constexpr const char* kCompanions[] = {"tokenizer.json",     "tokenizer_config.json",
                                       "tokenizer.model",    "special_tokens_map.json",
                                       "added_tokens.json",  "vocab.json",
                                       "merges.txt",         "chat_template.jinja",
                                       "chat_template.json", "generation_config.json"};

}  // namespace

ModelWriter::ModelWriter(const Path& folder, const ModelConfig& config, std::vector<nn::Parameter> table,
                         const ExportOptions& options)
    : folder_(folder),
      config_text_(config_text(config, options.dtype)),
      dtype_(options.dtype),
      // transformers asks for this entry before it opens a file.
      weights_(folder, specs_of(table, options.dtype), options.max_shard_bytes, {{"format", "pt"}}) {}

void ModelWriter::write_file(const std::string& tensor, int64_t offset, std::span<const float> values) {
  dispatch_float(dtype_, [&]<class T>() {
    const uint64_t at = uint64_t(offset) * sizeof(T);
    if constexpr (std::is_same_v<T, float>) {
      weights_.write(tensor, at, std::as_bytes(values));
    } else {
      std::vector<T> converted(values.size());
      std::ranges::transform(values, converted.begin(), [](float value) { return copy_of_master<T>(value); });
      weights_.write(tensor, at, std::as_bytes(std::span(converted)));
    }
  });
}

void ModelWriter::write(const nn::Parameter& parameter, int64_t begin, std::span<const float> values) {
  const int64_t end = begin + int64_t(values.size());
  ensure(begin >= 0 && end <= parameter.count(), "[export] {}: elements [{}, {}) of {}", parameter.name,
         begin, end, parameter.count());
  for (const FilePart& part : file_parts(parameter)) {
    const int64_t from = std::max(begin, part.begin) - part.begin, to = std::min(end, part.end) - part.begin;
    if (from >= to) continue;
    const auto ours = values.subspan(size_t(from + part.begin - begin), size_t(to - from));
    if (!part.slice->transposed) {
      write_file(part.slice->name, from, ours);
      continue;
    }
    const int64_t rows = part.shape[1], cols = part.shape[0];
    for (const Band& band : bands(from, to, cols)) {
      std::vector<float> columns(size_t(band.height() * cols));
      for_each_in_band(band, from, to, cols,
                       [&](int64_t i, int64_t banded) { columns[size_t(banded)] = ours[size_t(i)]; });
      for (int64_t c = 0; c < cols; ++c) {
        const Band some = rows_of_column(band, from, to, cols, c);
        if (some.height() <= 0) continue;
        write_file(part.slice->name, c * rows + some.first,
                   std::span(columns).subspan(size_t(c * band.height() + some.first - band.first),
                                              size_t(some.height())));
      }
    }
  }
}

void ModelWriter::commit() {
  replace_file(folder_ / "config.json", config_text_);
  weights_.commit();
}

void require_room(const Path& folder, const std::vector<nn::Parameter>& table, DType dtype) {
  uint64_t bytes = 0;
  for (const checkpoint::TensorSpec& tensor : specs_of(table, dtype)) bytes += tensor.bytes();
  Path there = std::filesystem::absolute(folder);
  while (!folder_exists(there) && there != there.parent_path()) there = there.parent_path();
  const uint64_t room = free_space(there);
  require(bytes <= room, ErrorKind::io,
          "[export] {}: the weights take {}, but only {} are free there; free some space, or choose another "
          "folder",
          folder.string(), format_bytes(bytes), format_bytes(room));
}

void export_model(const Path& folder, const ModelConfig& config, const std::vector<nn::Parameter>& table,
                  const ParameterValues& values, const ExportOptions& options) {
  constexpr int64_t kPiece = 1 << 20;
  ModelWriter writer(folder, config, table, options);
  std::vector<float> piece;
  for (const nn::Parameter& parameter : table) {
    // Whole rows: transposed matrices are then written in long stretches.
    const int64_t step = std::max<int64_t>(1, kPiece / parameter.cols) * parameter.cols;
    for (int64_t begin = 0; begin < parameter.count(); begin += step) {
      const int64_t end = std::min(begin + step, parameter.count());
      piece.resize(size_t(end - begin));
      values(parameter, begin, end, piece.data());
      writer.write(parameter, begin, piece);
    }
  }
  writer.commit();
}

void copy_companions(const Path& from, const Path& to) {
  make_folders(to);
  if (same_file(from, to)) return;
  for (const char* name : kCompanions) {
    if (file_exists(from / name)) replace_file(to / name, read_file(from / name));
  }
}

}  // namespace zeno::model
