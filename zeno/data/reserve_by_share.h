// Room for a list that grows while an input is read from its beginning to its end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace zeno::data {

// Makes room in a full list when `done` of `all` bytes of input have been read: for what the rest will add at
// that rate, of at most two entries per byte. Doubling would move the list more often, and hold up to three
// times its size at the end.
template <class T>
void reserve_by_share(std::vector<T>& list, size_t done, size_t all) {
  const size_t size = list.size();
  const double rate = done == 0 ? 0.25 : std::min(2.0, double(size) / double(done));
  const auto rest = size_t(double(all - std::min(done, all)) * rate);
  list.reserve(size + std::max(rest + rest / 16, size / 8) + 16);
}

}  // namespace zeno::data
