#include "zeno/model/weights.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "zeno/base/error.h"
#include "zeno/base/log.h"
#include "zeno/model/file_map.h"

namespace zeno::model {
namespace {

using checkpoint::StoredTensor;

constexpr std::string_view kPrefixes[] = {"transformer.", "model."};

// Buffers that older versions of transformers saved beside the weights, and the copy of a tied head.
bool is_harmless(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with("rotary_emb.inv_freq") || name == "lm_head.weight";
}

void check_tensor(const StoredTensor& tensor, const nn::Parameter& parameter, const FilePart& part) {
  const auto& shape = tensor.info->shape;
  const bool row_vector = parameter.rows == 1 &&
                          (shape.size() == 1 || (shape.size() == 2 && shape[0] == 1)) &&
                          tensor.info->count == part.end - part.begin;
  require(shape == part.shape || row_vector, ErrorKind::data,
          "[weights] {}: {} has shape {}, expected {}; config.json and weights do not belong together",
          tensor.file->path().string(), tensor.info->name, checkpoint::format_shape(shape),
          checkpoint::format_shape(part.shape));
  const bool floating = tensor.info->type == "F64" || (tensor.info->dtype && is_float(*tensor.info->dtype));
  require(floating, ErrorKind::data,
          "[weights] {}: {} has dtype {}, expected F32, BF16 or F16; quantised weights cannot be trained",
          tensor.file->path().string(), tensor.info->name, tensor.info->type);
}

void check_finite(const StoredTensor& tensor, int64_t offset, int64_t count, const float* values) {
  for (int64_t i = 0; i < count; ++i) {
    require(std::isfinite(values[i]), ErrorKind::data,
            "[weights] {}: {} holds {} at element {}; the file is damaged or the model diverged",
            tensor.file->path().string(), tensor.info->name, values[i], offset + i);
  }
}

void read_checked(const StoredTensor& tensor, int64_t offset, int64_t count, float* out) {
  tensor.read(offset, count, out);
  check_finite(tensor, offset, count, out);
}

// Elements [begin, end), counted within a part that the file stores as [cols, rows].
void read_transposed(const StoredTensor& tensor, int64_t rows, int64_t cols, int64_t begin, int64_t end,
                     float* out) {
  std::vector<float> columns;
  for (const Band& band : bands(begin, end, cols)) {
    columns.resize(size_t(band.height() * cols));
    for (int64_t c = 0; c < cols; ++c) {
      const Band some = rows_of_column(band, begin, end, cols, c);
      if (some.height() <= 0) continue;
      read_checked(tensor, c * rows + some.first, some.height(),
                   columns.data() + c * band.height() + some.first - band.first);
    }
    for_each_in_band(band, begin, end, cols,
                     [&](int64_t ours, int64_t banded) { out[ours] = columns[size_t(banded)]; });
  }
}

}  // namespace

WeightReader::WeightReader(const Path& folder, const std::vector<nn::Parameter>& table) : folder_(folder) {
  bool has_head = false;
  for (const nn::Parameter& parameter : table) {
    for (const nn::FileSlice& slice : parameter.files) has_head |= slice.name == "lm_head.weight";
  }
  for (const nn::Parameter& parameter : table) {
    if (parameter.adapter) continue;
    for (const FilePart& part : file_parts(parameter)) {
      const std::string& name = part.slice->name;
      const StoredTensor tensor = resolve(name, has_head);
      require(bool(tensor), ErrorKind::data, "[weights] {}: has no tensor {} (for our {}){}", folder.string(),
              name, parameter.name,
              name == "lm_head.weight" ? "; does config.json lack \"tie_word_embeddings\": true?" : "");
      check_tensor(tensor, parameter, part);
      stored_[name] = tensor;
    }
  }
  find_unused();
}

// Files of the bare model lack the first part of each name; a tied table may be stored under the head's name
// only.
StoredTensor WeightReader::resolve(const std::string& name, bool has_head) const {
  if (const StoredTensor tensor = folder_.find(name)) return tensor;
  for (std::string_view prefix : kPrefixes) {
    if (!name.starts_with(prefix)) continue;
    if (const StoredTensor tensor = folder_.find(std::string_view(name).substr(prefix.size()))) return tensor;
  }
  const bool embedding = name.ends_with(".wte.weight") || name.ends_with(".embed_tokens.weight");
  return embedding && !has_head ? folder_.find("lm_head.weight") : StoredTensor{};
}

void WeightReader::find_unused() {
  std::set<const checkpoint::TensorInfo*> used;
  for (const auto& [name, tensor] : stored_) used.insert(tensor.info);
  for (const auto& [name, tensor] : folder_.tensors()) {
    if (!used.contains(tensor.info) && !is_harmless(name)) unused_.push_back(name);
  }
  if (unused_.empty() || log_rank() > 0) return;
  log_warning("[weights] {}: {} tensors are not part of this model and are left out, the first is {}",
              folder_.path().string(), unused_.size(), unused_[0]);
}

void WeightReader::read(const nn::Parameter& parameter, int64_t begin, int64_t end, float* out) const {
  ensure(begin >= 0 && begin <= end && end <= parameter.count(), "[weights] {}: elements [{}, {}) of {}",
         parameter.name, begin, end, parameter.count());
  for (const FilePart& part : file_parts(parameter)) {
    const int64_t from = std::max(begin, part.begin), to = std::min(end, part.end);
    if (from >= to) continue;
    const StoredTensor& tensor = stored_.at(part.slice->name);
    if (part.slice->transposed) {
      read_transposed(tensor, part.shape[1], part.shape[0], from - part.begin, to - part.begin,
                      out + from - begin);
    } else {
      read_checked(tensor, from - part.begin, to - from, out + from - begin);
    }
  }
}

}  // namespace zeno::model
