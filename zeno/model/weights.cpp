#include "zeno/model/weights.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/checkpoint/safetensors_folder.h"
#include "zeno/model/file_map.h"

namespace zeno::model {
namespace {

class FolderSource : public TensorSource {
 public:
  explicit FolderSource(const Path& folder) : folder_(folder) {}

  std::string where() const override { return folder_.path().string(); }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : folder_.tensors()) names.push_back(name);
    return names;
  }
  std::optional<SourceTensor> find(std::string_view name) const override {
    const checkpoint::StoredTensor found = folder_.find(name);
    if (!found) return std::nullopt;
    const checkpoint::TensorInfo& info = *found.info;
    return SourceTensor{.name = info.name,
                        .shape = info.shape,
                        .type = std::string(info.type),
                        .floating = info.type == "F64" || (info.dtype && is_float(*info.dtype)),
                        .file = found.file->path().string()};
  }
  void read(const SourceTensor& tensor, int64_t begin, int64_t count, float* out) const override {
    folder_.find(tensor.name).read(begin, count, out);
  }

 private:
  checkpoint::WeightFolder folder_;
};

constexpr std::string_view kPrefixes[] = {"transformer.", "model."};

// Buffers that older versions of transformers saved beside the weights, and the copy of a tied head.
bool is_harmless(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with("rotary_emb.inv_freq") || name == "lm_head.weight";
}

void check_tensor(const SourceTensor& tensor, const nn::Parameter& parameter, const FilePart& part) {
  const auto& shape = tensor.shape;
  const bool row_vector = parameter.rows == 1 &&
                          (shape.size() == 1 || (shape.size() == 2 && shape[0] == 1)) &&
                          tensor.count() == part.end - part.begin;
  require(shape == part.shape || row_vector, ErrorKind::data,
          "[weights] {}: {} has shape {}, expected {}; config.json and weights do not belong together",
          tensor.file, tensor.name, checkpoint::format_shape(shape), checkpoint::format_shape(part.shape));
  require(
      tensor.floating, ErrorKind::data,
      "[weights] {}: {} has dtype {}, expected F32, BF16 or F16; training quantised weights is not supported",
      tensor.file, tensor.name, tensor.type);
}

void read_checked(const TensorSource& source, const SourceTensor& tensor, int64_t offset, int64_t count,
                  float* out) {
  source.read(tensor, offset, count, out);
  for (int64_t i = 0; i < count; ++i) {
    require(std::isfinite(out[i]), ErrorKind::data,
            "[weights] {}: {} holds {} at element {}; the file is damaged or the model diverged", tensor.file,
            tensor.name, out[i], offset + i);
  }
}

// Elements [begin, end), counted within a part that the file stores as [cols, rows].
void read_transposed(const TensorSource& source, const SourceTensor& tensor, int64_t begin, int64_t end,
                     float* out) {
  const int64_t cols = tensor.shape[0], rows = tensor.shape[1];
  std::vector<float> columns;
  for (const Band& band : bands(begin, end, cols)) {
    columns.resize(size_t(band.height() * cols));
    for (int64_t c = 0; c < cols; ++c) {
      const Band some = rows_of_column(band, begin, end, cols, c);
      if (some.height() <= 0) continue;
      read_checked(source, tensor, c * rows + some.first, some.height(),
                   columns.data() + c * band.height() + some.first - band.first);
    }
    for_each_in_band(band, begin, end, cols,
                     [&](int64_t ours, int64_t banded) { out[ours] = columns[size_t(banded)]; });
  }
}

}  // namespace

WeightReader::WeightReader(const Path& folder, const std::vector<nn::Parameter>& table)
    : WeightReader(std::make_unique<FolderSource>(folder), table) {}

WeightReader::WeightReader(std::unique_ptr<const TensorSource> source,
                           const std::vector<nn::Parameter>& table)
    : source_(std::move(source)) {
  bool has_head = false;
  for (const nn::Parameter& parameter : table) {
    for (const nn::FileSlice& slice : parameter.files) has_head |= slice.name == "lm_head.weight";
  }
  for (const nn::Parameter& parameter : table) {
    if (parameter.adapter) continue;
    for (const FilePart& part : file_parts(parameter)) {
      const std::string& name = part.slice->name;
      const std::optional<SourceTensor> tensor = resolve(name, has_head);
      require(tensor.has_value(), ErrorKind::data, "[weights] {}: has no tensor {} (for our {}){}",
              source_->where(), name, parameter.name,
              name == "lm_head.weight" ? "; does config.json lack \"tie_word_embeddings\": true?" : "");
      check_tensor(*tensor, parameter, part);
      stored_[name] = *tensor;
    }
  }
  find_unused();
}

// Files of the bare model lack the first part of each name; a tied table may be stored under the head's name
// only.
std::optional<SourceTensor> WeightReader::resolve(const std::string& name, bool has_head) const {
  if (auto tensor = source_->find(name)) return tensor;
  for (std::string_view prefix : kPrefixes) {
    if (!name.starts_with(prefix)) continue;
    if (auto tensor = source_->find(std::string_view(name).substr(prefix.size()))) return tensor;
  }
  const bool embedding = name.ends_with(".wte.weight") || name.ends_with(".embed_tokens.weight");
  return embedding && !has_head ? source_->find("lm_head.weight") : std::nullopt;
}

void WeightReader::find_unused() {
  std::set<std::string> used;
  for (const auto& [name, tensor] : stored_) used.insert(tensor.name);
  for (const std::string& name : source_->names()) {
    if (!used.contains(name) && !is_harmless(name)) unused_.push_back(name);
  }
  if (unused_.empty() || log_rank() > 0) return;
  log_warning("[weights] {}: ignoring {} tensors that are not part of this model, the first is {}",
              source_->where(), unused_.size(), unused_[0]);
}

void WeightReader::read(const nn::Parameter& parameter, int64_t begin, int64_t end, float* out) const {
  ensure(begin >= 0 && begin <= end && end <= parameter.count(), "[weights] {}: elements [{}, {}) of {}",
         parameter.name, begin, end, parameter.count());
  for (const FilePart& part : file_parts(parameter)) {
    const int64_t from = std::max(begin, part.begin), to = std::min(end, part.end);
    if (from >= to) continue;
    const SourceTensor& tensor = stored_.at(part.slice->name);
    if (part.slice->transposed) {
      read_transposed(*source_, tensor, from - part.begin, to - part.begin, out + from - begin);
    } else {
      read_checked(*source_, tensor, from - part.begin, to - from, out + from - begin);
    }
  }
}

}  // namespace zeno::model
