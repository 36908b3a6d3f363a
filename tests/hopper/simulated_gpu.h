// A Hopper GPU on the host, as far as the kernels of kernels/cuda/hopper use it. It knows the rules of the
// PTX manual for barriers, tiles, swizzled operands and products, and nothing of time: threads are fibers
// that take turns at random, some warps far more often than others, tiles arrive in any order, and a product
// reads its operands as late as it may, so a kernel that counts on luck fails with some seed. What it cannot
// tell: speed, and whether the manual was understood. The instructions themselves are in stand_in/, which
// takes the place of instructions.h in this test.
#pragma once

#include <cuda.h>
#include <ucontext.h>

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

namespace zeno::simulated {

inline constexpr uint32_t kSharedBytes = 232448;  // of a block
inline constexpr uint32_t kGroupThreads = 128, kWarpThreads = 32;
// An address of shared memory has the rank of its block above its place there.
inline constexpr uint32_t kRankShift = 24;
inline uint32_t place_of(uint32_t address) { return address % (1u << kRankShift); }

struct Barrier {
  int arrivals = 0, missing = 0;
  int64_t bytes = 0;  // announced and not yet there
  uint32_t parity = 0;
};

// One multiply_64x256x16 of a warpgroup: begun by each of its threads on its own.
struct Product {
  uint64_t a = 0, b = 0;
  bool across = false;
  uint32_t begun = 0;
  std::array<float*, kGroupThreads> sums{};
  std::array<bool, kGroupThreads> add{};
};

struct Warpgroup {
  std::deque<Product> products;  // under way
  int done = 0;                  // before those
  std::array<int, kGroupThreads> begun{};
  std::array<std::vector<int>, kGroupThreads> ends;  // how many a thread had begun at each end_products()
};

// Where the threads of a warp, or of a cluster, meet.
struct Meeting {
  uint32_t here = 0;
  uint64_t round = 0;
};

struct Warp {
  Meeting meeting;
  uint32_t pace = 1;                               // runs at every pace-th turn, about
  std::array<uint32_t, kWarpThreads> addresses{};  // of stored matrices
};

struct Block {
  uint32_t index = 0, rank = 0;
  uint32_t alive = 0;  // threads
  std::vector<std::byte> bytes;
  std::byte* shared = nullptr;  // in `bytes`, aligned
  std::map<uint32_t, Barrier> barriers;
  std::vector<Warpgroup> groups;
  std::vector<Warp> warps;

  Barrier& barrier(uint32_t address);
};

struct Cluster {
  std::array<Block, 2> blocks;
  Meeting meeting;
};

struct Thread {
  uint32_t index = 0;
  Cluster* cluster = nullptr;
  Block* block = nullptr;
  bool done = false;
  const std::function<bool()>* waits_for = nullptr;
  std::vector<std::byte> stack;
  ucontext_t context{};

  Warp& warp() const { return block->warps[index / kWarpThreads]; }
  Warpgroup& group() const { return block->groups[index / kGroupThreads]; }
};

// Takes the place of a tensor map of the driver, inside a CUtensorMap: boxes of so many rows of 64 16-bit
// values.
struct TileMap {
  const uint16_t* data;
  int64_t rows, cols, stride;
  int box_rows;
};
CUtensorMap tile_map(const TileMap& map);

class Gpu {
 public:
  Gpu(uint32_t clusters, uint32_t threads, uint32_t seed);

  // Until all threads are done. Throws when the kernel breaks a rule, or when nothing can go on.
  void run(const std::function<void()>& kernel);

  // For the instructions: the GPU and thread that run now.
  static Gpu& current();
  Thread& thread() const { return *thread_; }
  uint32_t blocks() const { return uint32_t(clusters_.size()) * 2; }
  // Something happened that others may wait for.
  void progress() { idle_ = 0; }
  // Lets others go on until `ready`.
  void wait(const std::function<bool()>& ready);
  void meet(Meeting& meeting, uint32_t all);
  void arrive(Block& block, uint32_t address, int64_t bytes);
  void load(Block& to_block, uint32_t to, const TileMap& map, int column, int row, uint32_t barrier);
  // Runs the oldest product of the group if all of its threads have begun it.
  void run_product(Block& block, Warpgroup& group);
  bool chance(uint32_t one_in) { return random_() % one_in == 0; }

 private:
  struct Load {
    Block* block;
    uint32_t to;
    TileMap map;
    int column, row;
    uint32_t barrier;
  };
  static void enter();
  // Lets the thread go on, unless it waits for what has not come.
  void resume(Thread& thread);
  void finish_load();
  static void end_phase(Barrier& barrier);

  std::mt19937 random_;
  std::vector<std::unique_ptr<Cluster>> clusters_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Load> loads_;
  const std::function<void()>* kernel_ = nullptr;
  size_t alive_ = 0;  // threads
  std::exception_ptr error_;
  Thread* thread_ = nullptr;
  ucontext_t scheduler_{};
  uint64_t idle_ = 0;  // turns since something happened
};

// What a kernel must not do.
class BrokenRule : public std::runtime_error {
  using std::runtime_error::runtime_error;
};
void expect_rule(bool kept, const char* rule);

}  // namespace zeno::simulated
