#include "zeno/kernels/rope.h"

#include "tests/cuda/parity.h"

namespace zeno::cuda_tests {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};
constexpr int64_t kPositions = 50;

struct Shape {
  int64_t rows, queries, keys, values, head_dim;
  int64_t before = 0;  // columns of the packed matrix left of the heads
};
// Heads that fill a team of threads, that leave some idle, that are not whole words or start beside them;
// fewer heads than a thread takes, and more; more rows than blocks.
constexpr Shape kShapes[] = {{33, 4, 1, 1, 64}, {7, 3, 3, 2, 128, 64}, {100, 5, 2, 2, 80, 16},
                             {3, 2, 1, 1, 6},   {9, 1, 1, 0, 96, 3},   {2, 32, 8, 8, 64},
                             {1, 2, 1, 1, 2},   {300, 16, 8, 8, 128},  {12, 2, 2, 2, 256},
                             {5, 7, 1, 1, 72},  {9000, 4, 2, 1, 16},   {1, 1, 1, 1, 8}};

class CudaRope : public Parity {
 protected:
  Twin table(int64_t head_dim) {
    const Twin twin = zeros(DType::f32, kPositions, head_dim);
    rope_table(twin.cpu, rope_frequencies(head_dim, 10000, {}));
    upload(twin);
    return twin;
  }
  Twin positions(int64_t rows) {
    std::vector<int32_t> values;
    for (int64_t r = 0; r < rows; ++r) values.push_back(int32_t(r * 17 % kPositions));
    return ints(values);
  }
  static Tensor heads(const Tensor& packed, const Shape& s) {
    return packed.columns(s.before, packed.cols - s.before);
  }
  static int64_t width(const Shape& s) { return s.before + (s.queries + s.keys + s.values) * s.head_dim; }

  // forward, then backward, on both devices.
  template <class Body>
  void on_both(const Body& body) {
    body(StreamRef(cpu), &Twin::cpu);
    body(StreamRef(*gpu), &Twin::gpu);
  }
};

TEST_F(CudaRope, TurnsTheHeadsOfAPackedMatrixAsTheCpuDoes) {
  for (DType dtype : kTypes) {
    for (const Shape& s : kShapes) {
      const Twin angles = table(s.head_dim), where = positions(s.rows);
      const Twin packed = normal(dtype, s.rows, width(s), 1), gradient = normal(dtype, s.rows, width(s), 2);
      on_both([&](StreamRef stream, Tensor Twin::*side) {
        const Tensor x = heads(packed.*side, s);
        rope_forward(stream, {.x = x,
                              .y = x,
                              .positions = where.*side,
                              .table = angles.*side,
                              .q_heads = s.queries,
                              .k_heads = s.keys,
                              .head_dim = s.head_dim});
        rope_backward(stream, {.dx = heads(gradient.*side, s),
                               .positions = where.*side,
                               .table = angles.*side,
                               .q_heads = s.queries,
                               .k_heads = s.keys,
                               .head_dim = s.head_dim});
      });
      // The whole matrix: nothing beside the heads may change.
      EXPECT_LE(difference(packed), tolerance(dtype)) << name_of(dtype) << " head " << s.head_dim;
      EXPECT_LE(difference(gradient), tolerance(dtype)) << name_of(dtype) << " head " << s.head_dim;
    }
  }
}

// All tensors of QK-norm and rope.
struct Normed {
  Shape s;
  Twin angles, where, x, y, raw, rstd, q_weight, k_weight, dy, dq_weight, dk_weight;

  RopeForward forward(Tensor Twin::*side) const {
    return {.x = x.*side,
            .y = y.*side,
            .positions = where.*side,
            .table = angles.*side,
            .q_heads = s.queries,
            .k_heads = s.keys,
            .head_dim = s.head_dim,
            .q_weight = q_weight.*side,
            .k_weight = k_weight.*side,
            .rstd = rstd.*side,
            .raw = raw.*side};
  }
  RopeBackward backward(Tensor Twin::*side) const {
    return {.dx = dy.*side,
            .positions = where.*side,
            .table = angles.*side,
            .q_heads = s.queries,
            .k_heads = s.keys,
            .head_dim = s.head_dim,
            .x = raw ? raw.*side : x.*side,
            .q_weight = q_weight.*side,
            .k_weight = k_weight.*side,
            .rstd = rstd.*side,
            .dq_weight = dq_weight.*side,
            .dk_weight = dk_weight.*side};
  }
};

TEST_F(CudaRope, NormOfHeadsIsTheCpuFunction) {
  for (DType dtype : kTypes) {
    for (Shape s : kShapes) {
      const bool in_place = s.rows % 2 == 0;
      const int64_t turned = (s.queries + s.keys) * s.head_dim;
      const DType weights = s.head_dim % 3 ? dtype : DType::f32, gradients = s.rows % 3 ? DType::f32 : dtype;
      s.before = 0;
      Normed n{.s = s,
               .angles = table(s.head_dim),
               .where = positions(s.rows),
               .x = normal(dtype, s.rows, width(s), 1, 2),
               .y = {},
               .raw = in_place ? poison(dtype, s.rows, turned) : Twin{},
               .rstd = poison(DType::f32, s.rows, s.queries + s.keys),
               .q_weight = normal(weights, 1, s.head_dim, 2, 0.2, 1),
               .k_weight = normal(weights, 1, s.head_dim, 3, 0.2, 1),
               .dy = normal(dtype, s.rows, width(s), 4),
               .dq_weight = normal(gradients, 1, s.head_dim, 5),
               .dk_weight = s.rows == 7 ? Twin{} : normal(gradients, 1, s.head_dim, 6)};
      n.y = in_place ? n.x : poison(dtype, s.rows, width(s));
      on_both([&](StreamRef stream, Tensor Twin::*side) { rope_forward(stream, n.forward(side)); });
      SCOPED_TRACE(std::string(name_of(dtype)) + " head " + std::to_string(s.head_dim));
      EXPECT_LE(difference(n.y), tolerance(dtype));
      EXPECT_LE(difference(n.rstd), 2e-6);
      if (n.raw) {
        EXPECT_EQ(difference(n.raw), 0);
      }
      on_both([&](StreamRef stream, Tensor Twin::*side) { rope_backward(stream, n.backward(side)); });
      EXPECT_LE(difference(n.dy), tolerance(dtype));
      EXPECT_LE(difference(n.dq_weight), gradients == DType::f32 ? 1e-5 : tolerance(gradients));
      if (n.dk_weight) {
        EXPECT_LE(difference(n.dk_weight), gradients == DType::f32 ? 1e-5 : tolerance(gradients));
      }
    }
  }
}

TEST_F(CudaRope, GradientsOfNormsHaveTheSameBitsEveryTime) {
  const Shape s{5000, 8, 4, 4, 64};
  const auto run = [&] {
    const Normed n{.s = s,
                   .angles = table(s.head_dim),
                   .where = positions(s.rows),
                   .x = normal(DType::bf16, s.rows, width(s), 1),
                   .y = {},
                   .raw = {},
                   .rstd = normal(DType::f32, s.rows, s.queries + s.keys, 2, 0.05, 1),
                   .q_weight = normal(DType::bf16, 1, s.head_dim, 3),
                   .k_weight = normal(DType::bf16, 1, s.head_dim, 4),
                   .dy = normal(DType::bf16, s.rows, width(s), 5),
                   .dq_weight = zeros(DType::f32, 1, s.head_dim),
                   .dk_weight = zeros(DType::f32, 1, s.head_dim)};
    rope_backward(*gpu, n.backward(&Twin::gpu));
    std::vector<double> sums = on_gpu(n.dq_weight);
    for (double value : on_gpu(n.dk_weight)) sums.push_back(value);
    return sums;
  };
  const std::vector<double> first = run();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(), first);
}

}  // namespace
}  // namespace zeno::cuda_tests
