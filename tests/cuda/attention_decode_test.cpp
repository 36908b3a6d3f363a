#include "zeno/kernels/attention_decode.h"

#include "tests/cuda/parity.h"

namespace zeno::cuda_tests {
namespace {

class CudaAttentionDecode : public Parity {};

struct Case {
  int64_t heads, kv_heads, head_dim, window;
};

TEST_F(CudaAttentionDecode, ContinuesSequencesAsTheCpuDoes) {
  constexpr int64_t kCapacity = 200, kSequences = 3;
  const Case cases[] = {{4, 4, 64, 0}, {8, 2, 128, 0}, {6, 1, 80, 50}, {2, 2, 8, 0}, {3, 3, 256, 0}};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const Case& c : cases) {
      const int64_t rows = kSequences * c.kv_heads * cache_tiles(kCapacity);
      const Twin keys = poison(dtype, rows, c.head_dim * kCacheTile),
                 values = poison(dtype, rows, keys.cpu.cols);
      const auto feed = [&](const std::vector<int32_t>& slots, const std::vector<int32_t>& starts,
                            int64_t seq, uint64_t seed) {
        std::vector<int32_t> positions;
        for (const int32_t start : starts) {
          for (int64_t t = 0; t < seq; ++t) positions.push_back(start + int32_t(t));
        }
        const int64_t batch = int64_t(slots.size());
        const Twin qkv = normal(dtype, batch * seq, (c.heads + 2 * c.kv_heads) * c.head_dim, seed);
        const Twin out = poison(dtype, batch * seq, c.heads * c.head_dim);
        const Twin at = ints(positions), slot = ints(slots);
        const AttentionShape shape{.batch = batch,
                                   .seq = seq,
                                   .heads = c.heads,
                                   .kv_heads = c.kv_heads,
                                   .head_dim = c.head_dim,
                                   .scale = 1 / std::sqrt(float(c.head_dim)),
                                   .window = c.window};
        attention_decode(cpu, {shape, qkv.cpu, at.cpu, slot.cpu, {keys.cpu, values.cpu}, kCapacity, out.cpu});
        attention_decode(*gpu,
                         {shape, qkv.gpu, at.gpu, slot.gpu, {keys.gpu, values.gpu}, kCapacity, out.gpu});
        EXPECT_LT(difference(out), tolerance(dtype))
            << name_of(dtype) << " " << c.heads << "/" << c.kv_heads << " heads of " << c.head_dim;
      };
      feed({1}, {0}, 130, 1);              // a prompt
      feed({2}, {0}, 1, 2);                // one of a single token
      feed({1}, {130}, 17, 3);             // its next part
      feed({2, 1}, {1, 147}, 1, 4);        // steps of both
      feed({0, 1, 2}, {0, 148, 2}, 2, 5);  // all, two tokens each
    }
  }
}

}  // namespace
}  // namespace zeno::cuda_tests
