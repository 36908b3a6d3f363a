#include "zeno/train/model_saver.h"

#include <algorithm>
#include <optional>

#include "zeno/model/adapter.h"
#include "zeno/model/export.h"

namespace zeno::train {

template <class Writer>
void ModelSaver::write(Writer* writer) {
  const std::vector<nn::Parameter>& table = engine_.units().params;
  constexpr int64_t kPiece = 1 << 20;
  std::vector<float> values;
  for (int p = 0; p < int(table.size()); ++p) {
    if (tuning_.lora && !table[p].trainable) continue;
    for (int64_t begin = 0; begin < table[p].count(); begin += kPiece) {
      values.resize(size_t(std::min(kPiece, table[p].count() - begin)));
      engine_.read(zero::State::master, p, begin, values);
      if (writer != nullptr) writer->write(table[p], begin, values);
    }
  }
  if (writer != nullptr) writer->commit();
}

size_t ModelSaver::bytes() const {
  const zero::UnitTable& units = engine_.units();
  return tuning_.lora ? size_t(units.trainable_elements()) * sizeof(float)
                      : size_t(units.elements()) * size_of(config_.dtype);
}

void ModelSaver::save(const Path& folder) {
  const std::vector<nn::Parameter>& table = engine_.units().params;
  if (rank_ == 0) make_folders(folder);
  if (tuning_.lora) {
    std::optional<model::AdapterWriter> writer;
    if (rank_ == 0)
      writer.emplace(folder, model::AdapterWriter::Options{config_, *tuning_.lora, source_}, table);
    write(writer ? &*writer : nullptr);
  } else {
    std::optional<model::ModelWriter> writer;
    if (rank_ == 0) writer.emplace(folder, config_, table, model::ExportOptions{.dtype = config_.dtype});
    write(writer ? &*writer : nullptr);
  }
  if (rank_ == 0) model::copy_companions(source_, folder);
}

}  // namespace zeno::train
