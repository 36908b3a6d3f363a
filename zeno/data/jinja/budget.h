// What one rendering may use. A chat template comes from a stranger's folder: it must neither hang nor eat
// the memory. Every evaluated node and every item touched is a step, every text or list made counts its
// bytes. Owned by one rendering; one thread.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace zeno::data::jinja {

// What a template did wrong while it ran. Template::render adds template and line and makes it a zeno::Error.
struct RenderError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Limits {
  uint64_t steps = 10'000'000;
  uint64_t bytes = uint64_t(1) << 29;  // made in total, not at one time
  int depth = 500;                     // nested expressions, blocks and calls
};

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}
  void step(uint64_t count = 1);
  void bytes(uint64_t count);

  // One level of nesting while it lives.
  class Level {
   public:
    explicit Level(Budget& budget);
    ~Level() { --budget_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Budget& budget_;
  };

 private:
  Limits limits_;
  uint64_t steps_ = 0, bytes_ = 0;
  int depth_ = 0;
};

}  // namespace zeno::data::jinja
