#include "tests/hopper/simulated_gpu.h"

#include <bit>
#include <cstring>

namespace zeno::simulated {
namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr uint64_t kMostIdle = 300'000;  // turns: far more than the waits of one phase

Gpu* running = nullptr;

constexpr uint32_t kRowBytes = 128;  // of tiles and operands

// SWIZZLE_128B: 16-byte pieces of rows, exchanged by bits of their address.
uint32_t swizzled(uint32_t address) { return address ^ ((address >> 7 & 7) << 4); }

// What a matrix descriptor says.
struct Operand {
  uint32_t start, leading, stride;

  explicit Operand(uint64_t bits)
      : start(uint32_t(bits & 0x3fff) << 4),
        leading(uint32_t(bits >> 16 & 0x3fff) << 4),
        stride(uint32_t(bits >> 32 & 0x3fff) << 4) {
    expect_rule(bits >> 62 == 1, "an operand is swizzled by 128 bytes");
  }
  float by_depth(const Block& block, uint32_t row, uint32_t depth) const {
    return value(block, row / 8 * stride + row % 8 * kRowBytes + depth * 2);
  }
  float across(const Block& block, uint32_t column, uint32_t depth) const {
    constexpr uint32_t wide = kRowBytes / 2;
    return value(block,
                 column / wide * leading + column % wide * 2 + depth / 8 * stride + depth % 8 * kRowBytes);
  }

 private:
  float value(const Block& block, uint32_t offset) const {
    const uint32_t at = swizzled(start + offset);
    expect_rule(at + 2 <= kSharedBytes, "an operand lies in shared memory");
    uint16_t bits = 0;
    std::memcpy(&bits, block.shared + at, sizeof bits);
    return std::bit_cast<float>(uint32_t(bits) << 16);
  }
};

void multiply(const Block& block, const Product& product) {
  constexpr uint32_t kRows = 64, kColumns = 256, kDepth = 16;
  const Operand a(product.a), b(product.b);
  std::vector<std::array<float, kDepth>> rows(kRows), columns(kColumns);
  for (uint32_t k = 0; k < kDepth; ++k) {
    for (uint32_t r = 0; r < kRows; ++r) rows[r][k] = a.by_depth(block, r, k);
    for (uint32_t c = 0; c < kColumns; ++c)
      columns[c][k] = product.across ? b.across(block, c, k) : b.by_depth(block, c, k);
  }
  for (uint32_t thread = 0; thread < kGroupThreads; ++thread) {
    const uint32_t warp = thread / kWarpThreads, lane = thread % kWarpThreads;
    for (uint32_t i = 0; i < kRows * kColumns / kGroupThreads; ++i) {
      const uint32_t row = warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      float& sum = product.sums[thread][i];
      if (!product.add[thread]) sum = 0;
      for (uint32_t k = 0; k < kDepth; ++k) sum += rows[row][k] * columns[column][k];
    }
  }
}

}  // namespace

void expect_rule(bool kept, const char* rule) {
  if (!kept) throw BrokenRule(rule);
}

CUtensorMap tile_map(const TileMap& map) {
  static_assert(sizeof(TileMap) <= sizeof(CUtensorMap));
  CUtensorMap bytes{};
  std::memcpy(&bytes, &map, sizeof map);
  return bytes;
}

Barrier& Block::barrier(uint32_t address) {
  expect_rule(alive > 0, "a block stays until nobody arrives in it any more");
  const auto found = barriers.find(place_of(address));
  expect_rule(found != barriers.end(), "a barrier is initialised before it is used");
  return found->second;
}

Gpu& Gpu::current() { return *running; }

Gpu::Gpu(uint32_t clusters, uint32_t threads, uint32_t seed) : random_(seed) {
  for (uint32_t c = 0; c < clusters; ++c) {
    clusters_.push_back(std::make_unique<Cluster>());
    for (uint32_t rank = 0; rank < 2; ++rank) {
      Block& block = clusters_.back()->blocks[rank];
      block.index = c * 2 + rank;
      block.rank = rank;
      block.bytes.resize(kSharedBytes + 1024);
      for (std::byte& byte : block.bytes) byte = std::byte(random_());
      const auto address = reinterpret_cast<uintptr_t>(block.bytes.data());
      block.shared = block.bytes.data() + (1024 - address % 1024);
      block.alive = threads;
      block.groups.resize(threads / kGroupThreads);
      block.warps.resize(threads / kWarpThreads);
      const uint32_t pace = std::array{1u, 8u}[random_() % 2];  // one block may be far ahead of the other
      for (Warp& warp : block.warps) warp.pace = pace * std::array{1u, 1u, 4u, 16u}[random_() % 4];
      for (uint32_t i = 0; i < threads; ++i) {
        auto thread = std::make_unique<Thread>();
        thread->index = i;
        thread->cluster = clusters_.back().get();
        thread->block = &block;
        thread->stack.resize(kStackBytes);
        threads_.push_back(std::move(thread));
      }
    }
  }
}

// An exception must not leave its fiber: the scheduler rethrows it.
void Gpu::enter() {
  Gpu& gpu = *running;
  try {
    (*gpu.kernel_)();
  } catch (...) {
    gpu.error_ = std::current_exception();
  }
  gpu.thread_->done = true;
  --gpu.alive_;
  --gpu.thread_->block->alive;
  gpu.progress();
  swapcontext(&gpu.thread_->context, &gpu.scheduler_);
}

void Gpu::resume(Thread& thread) {
  if (thread.done || (thread.waits_for && !(*thread.waits_for)())) return;
  thread_ = &thread;
  swapcontext(&scheduler_, &thread.context);
  if (error_) std::rethrow_exception(error_);
}

void Gpu::run(const std::function<void()>& kernel) {
  running = this;
  kernel_ = &kernel;
  for (const auto& thread : threads_) {
    getcontext(&thread->context);
    thread->context.uc_stack = {thread->stack.data(), 0, thread->stack.size()};
    makecontext(&thread->context, &Gpu::enter, 0);
  }
  for (alive_ = threads_.size(); alive_ > 0;) {
    if (chance(8)) finish_load();
    const size_t first = random_() % threads_.size() / kWarpThreads * kWarpThreads;
    if (!chance(threads_[first]->warp().pace)) continue;
    for (size_t i = first; i < first + kWarpThreads; ++i) resume(*threads_[i]);
    expect_rule(++idle_ < kMostIdle, "somebody can always go on");
  }
  expect_rule(loads_.empty(), "all tiles have arrived before the end");
}

void Gpu::wait(const std::function<bool()>& ready) {
  if (ready()) return;
  Thread& thread = *thread_;
  thread.waits_for = &ready;
  swapcontext(&thread.context, &scheduler_);
  thread.waits_for = nullptr;
}

void Gpu::meet(Meeting& meeting, uint32_t all) {
  const uint64_t round = meeting.round;
  if (++meeting.here == all) {
    meeting.here = 0;
    ++meeting.round;
    return progress();
  }
  wait([&] { return meeting.round != round; });
}

void Gpu::end_phase(Barrier& barrier) {
  if (barrier.missing > 0 || barrier.bytes != 0) return;
  barrier.missing = barrier.arrivals;
  barrier.parity ^= 1;
}

void Gpu::arrive(Block& block, uint32_t address, int64_t bytes) {
  Barrier& barrier = block.barrier(address);
  expect_rule(barrier.missing > 0, "no more arrive than were announced");
  barrier.bytes += bytes;
  --barrier.missing;
  end_phase(barrier);
  progress();
}

void Gpu::load(Block& to_block, uint32_t to, const TileMap& map, int column, int row, uint32_t barrier) {
  loads_.push_back({&to_block, to, map, column, row, barrier});
  progress();
}

void Gpu::finish_load() {
  if (loads_.empty()) return;
  const auto place = loads_.begin() + long(random_() % loads_.size());
  const Load load = *place;
  loads_.erase(place);
  for (uint32_t r = 0; r < uint32_t(load.map.box_rows); ++r) {
    for (uint32_t c = 0; c < kRowBytes / 2; ++c) {
      const int64_t row = load.row + int64_t(r), column = load.column + int64_t(c);
      const bool inside = row < load.map.rows && column < load.map.cols;
      const uint16_t value = inside ? load.map.data[row * load.map.stride + column] : uint16_t(0);
      const uint32_t at = swizzled(place_of(load.to) + r * kRowBytes + c * 2);
      expect_rule(at + 2 <= kSharedBytes, "a tile arrives in shared memory");
      std::memcpy(load.block->shared + at, &value, sizeof value);
    }
  }
  Barrier& barrier = load.block->barrier(load.barrier);
  barrier.bytes -= load.map.box_rows * int64_t(kRowBytes);
  end_phase(barrier);
  progress();
}

void Gpu::run_product(Block& block, Warpgroup& group) {
  if (group.products.empty() || group.products.front().begun < kGroupThreads) return;
  multiply(block, group.products.front());
  group.products.pop_front();
  ++group.done;
  progress();
}

}  // namespace zeno::simulated
