// Where the elements of a parameter are in the tensors of a Hugging Face folder. Ours may be several of
// theirs stacked (q, k, v), or one stored transposed. Pure arithmetic.
//
// A slice counts rows of a matrix; in a vector ([1, n]) it counts elements. rows = 0 means all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "zeno/nn/layer.h"

namespace zeno::model {

// The elements [begin, end) of a parameter that are one tensor of the file, of `shape`.
struct FilePart {
  const nn::FileSlice* slice = nullptr;
  int64_t begin = 0, end = 0;
  std::vector<int64_t> shape;  // in the file
};

// Parts in the order of our elements; an internal Error if they do not cover the parameter exactly.
std::vector<FilePart> file_parts(const nn::Parameter& parameter);

// A band of rows [first, last) of a transposed part: at most about a million elements, so that no second copy
// of a large matrix is needed. The file has column c of the band at c · rows + first, contiguous.
struct Band {
  int64_t first = 0, last = 0;
  int64_t height() const { return last - first; }
};

// Bands that cover elements [begin, end) of a matrix with `cols` columns.
std::vector<Band> bands(int64_t begin, int64_t end, int64_t cols);

// Rows of the band that column `c` of elements [begin, end) touches: all, or without the first or the last.
Band rows_of_column(const Band& band, int64_t begin, int64_t end, int64_t cols, int64_t c);

// Calls pair(ours, banded) for each element of [begin, end) in the band: its index from `begin`, and its
// index in the band stored column by column. Walks in tiles that stay in cache on both sides.
template <class F>
void for_each_in_band(const Band& band, int64_t begin, int64_t end, int64_t cols, F&& pair) {
  constexpr int64_t kTile = 16;
  for (int64_t tile = band.first; tile < band.last; tile += kTile) {
    const int64_t tile_end = std::min(tile + kTile, band.last);
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t r = tile; r < tile_end; ++r) {
        const int64_t i = r * cols + c;
        if (i >= begin && i < end) pair(i - begin, c * band.height() + r - band.first);
      }
    }
  }
}

}  // namespace zeno::model
