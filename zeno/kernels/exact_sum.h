// A sum of doubles that does not depend on the order of its terms: an integer accumulator as wide as the range of
// double (a Kulisch accumulator, in limbs of 32 bits). Used for gradient norms and losses, so that both have the
// same bits for every sharding, bucket size and world size. Plain data: may be sent between ranks as bytes and
// merged there.
#pragma once

#include <array>
#include <cstdint>

namespace zeno {

class ExactSum {
 public:
  // Adds a finite double exactly; a non-finite one makes the whole sum non-finite (NaN).
  void add(double value);
  void add(const ExactSum& other);
  // The sum, rounded to double once.
  double value() const;

 private:
  static constexpr int kLimbs = 68;         // 2^-1074 .. 2^1024 and room for 2^31 carries
  void normalize();
  std::array<int64_t, kLimbs> limbs_{};     // value = Σ limbs[i] · 2^(32·i − 1088)
  uint32_t pending_ = 0;                    // additions since the last carry pass
  uint32_t nonfinite_ = 0;
};

}  // namespace zeno
