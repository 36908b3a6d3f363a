#include "zeno/model/file_map.h"

#include "zeno/base/error.h"
#include "zeno/base/math.h"

namespace zeno::model {

std::vector<FilePart> file_parts(const nn::Parameter& parameter) {
  int64_t counted = 0;
  for (const nn::FileSlice& slice : parameter.files) counted += slice.rows;
  // A matrix that happens to have one row is still counted in rows.
  const bool vector = parameter.rows == 1 && counted != 1;
  const int64_t all = vector ? parameter.cols : parameter.rows;
  const int64_t unit = vector ? 1 : parameter.cols;
  std::vector<FilePart> parts;
  int64_t covered = 0;
  for (const nn::FileSlice& slice : parameter.files) {
    const int64_t rows = slice.rows == 0 ? all : slice.rows;
    FilePart part{&slice, slice.row * unit, (slice.row + rows) * unit, {rows}};
    if (!vector) part.shape = slice.transposed ? std::vector{unit, rows} : std::vector{rows, unit};
    ensure(part.begin == covered, "[model] {}: files cover {} elements, then continue at {}", parameter.name,
           covered, part.begin);
    covered = part.end;
    parts.push_back(std::move(part));
  }
  ensure(covered == parameter.count(), "[model] {}: files cover {} of {} elements", parameter.name, covered,
         parameter.count());
  return parts;
}

std::vector<Band> bands(int64_t begin, int64_t end, int64_t cols) {
  constexpr int64_t kElements = 1 << 20;
  const int64_t height = std::max<int64_t>(1, kElements / cols);
  std::vector<Band> result;
  if (begin == end) return result;
  const int64_t last = div_ceil(end, cols);
  for (int64_t row = begin / cols; row < last; row += height)
    result.push_back({row, std::min(row + height, last)});
  return result;
}

Band rows_of_column(const Band& band, int64_t begin, int64_t end, int64_t cols, int64_t c) {
  Band rows = band;
  if (rows.first * cols + c < begin) ++rows.first;
  if ((rows.last - 1) * cols + c >= end) --rows.last;
  return rows;  // may be empty: last <= first
}

}  // namespace zeno::model
