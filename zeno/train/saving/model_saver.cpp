#include "zeno/train/saving/model_saver.h"

#include <algorithm>
#include <memory>

#include "zeno/base/error.h"
#include "zeno/model/adapter.h"
#include "zeno/model/export.h"

namespace zeno::train {

// If rank 0 cannot write, it still reads to the end, because reading is collective.
template <class Make>
std::string ModelSaver::write(const Path& folder, const Make& make) {
  std::string problem;
  const auto attempt = [&](const auto& action) {
    if (rank_ != 0 || !problem.empty()) return;
    try {
      action();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::io) throw;
      problem = error.what();
    }
  };
  const std::vector<nn::Parameter>& table = engine_.units().params;
  decltype(make()) writer;
  attempt([&] {
    make_folders(folder);
    writer = make();
  });
  constexpr int64_t kPiece = 1 << 20;
  std::vector<float> values;
  for (int p = 0; p < int(table.size()); ++p) {
    if (tuning_.lora && !table[p].trainable) continue;
    for (int64_t begin = 0; begin < table[p].count(); begin += kPiece) {
      values.resize(size_t(std::min(kPiece, table[p].count() - begin)));
      engine_.read(zero::State::master, p, begin, values);
      attempt([&] { writer->write(table[p], begin, values); });
    }
  }
  attempt([&] {
    writer->commit();
    model::copy_companions(source_, folder);
  });
  return problem;
}

size_t ModelSaver::bytes() const {
  const zero::UnitTable& units = engine_.units();
  return tuning_.lora ? size_t(units.trainable_elements()) * sizeof(float)
                      : size_t(units.elements()) * size_of(config_.dtype);
}

std::string ModelSaver::save(const Path& folder) {
  const std::vector<nn::Parameter>& table = engine_.units().params;
  if (tuning_.lora)
    return write(folder, [&] {
      return std::make_unique<model::AdapterWriter>(
          folder, model::AdapterWriter::Options{config_, *tuning_.lora, source_}, table);
    });
  return write(folder, [&] {
    return std::make_unique<model::ModelWriter>(folder, config_, table,
                                                model::ExportOptions{.dtype = config_.dtype});
  });
}

}  // namespace zeno::train
