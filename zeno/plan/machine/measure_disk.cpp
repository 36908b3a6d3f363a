#include "zeno/plan/machine/measure_disk.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "zeno/base/error.h"
#include "zeno/base/rng.h"
#include "zeno/device/buffer.h"
#include "zeno/device/disk_store.h"

namespace zeno::plan {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const auto& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

void require_room(const Path& folder, size_t bytes) {
  const uint64_t free = free_space(folder);
  require(
      free >= bytes, ErrorKind::io,
      "[measure] {}: got {} free, expected {} during the measurement; free some space or name another folder",
      folder.string(), format_bytes(free), format_bytes(bytes));
}

DiskRates measure_disk(const Path& folder, size_t bytes) {
  constexpr int kExtents = 16;
  constexpr double kPatience = 2;  // seconds, for the first writes
  require_room(folder, bytes);
  const size_t extent = bytes / kExtents;
  Ledger ledger;
  ledger.book(Tier::host, Purpose::staging, extent);
  Buffer memory(ledger, Tier::host, Purpose::staging, extent);
  for (size_t i = 0; i + 8 <= extent; i += 8) {
    const uint64_t bits = mix64(i);
    std::memcpy(memory.data() + i, &bits, 8);
  }
  const std::span<std::byte> view(memory.data(), extent);
  DiskStore store({.folders = {folder}, .name = "doctor"});
  for (int e = 0; e < kExtents; ++e) store.add(extent, "bytes for measuring the disk");
  store.create();
  store.register_buffer(view);
  int extents = 0;  // that there is time for
  for (double spent = 0; extents < kExtents && spent < kPatience; ++extents)
    spent += seconds_of([&] { store.write(extents, view); });
  std::vector<double> writes, reads;
  for (int e = 0; e < extents; ++e) writes.push_back(seconds_of([&] { store.write(e, view); }));
  for (int e = 0; e < extents; ++e) reads.push_back(seconds_of([&] { store.read(e, view); }));
  return {double(extent) / median(reads), double(extent) / median(writes), std::string(store.engine())};
}

}  // namespace zeno::plan
