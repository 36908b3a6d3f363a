#include "zeno/kernels/cuda/attention/attention.h"

#include <algorithm>

#include "tests/cuda/parity.h"
#include "zeno/device/cuda/runtime.h"

namespace zeno::cuda_tests {
namespace {

struct Documents {
  std::vector<int32_t> starts;  // of every token; empty: one document per sequence
  int64_t count = 0;
};

class Attention : public Parity {
 protected:
  static AttentionShape shape(int64_t batch, int64_t seq, int64_t heads, int64_t kv_heads, int64_t head_dim,
                              int64_t window = 0) {
    return {batch, seq, heads, kv_heads, head_dim, 1 / std::sqrt(float(head_dim)), window, true};
  }

  // Documents of 1 to `longest` tokens, every third of one token.
  static Documents documents(const AttentionShape& s, int64_t longest, uint64_t seed) {
    std::mt19937_64 engine(seed);
    std::uniform_int_distribution<int64_t> length(1, longest);
    Documents docs;
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t at = 0; at < s.seq; ++docs.count) {
        const int64_t end = std::min(s.seq, at + (docs.count % 3 == 2 ? 1 : length(engine)));
        docs.starts.insert(docs.starts.end(), size_t(end - at), int32_t(at));
        at = end;
      }
    }
    return docs;
  }

  struct Input {
    AttentionShape shape;
    Twin qkv, dout, doc_start;
    int64_t documents = 0;
  };
  struct Output {
    Twin out, lse, dqkv;
  };

  // padding: extra elements between rows, as in a slice of a wider matrix.
  Input input(DType dtype, const AttentionShape& s, const Documents& docs = {}, int64_t padding = 0) {
    const int64_t rows = s.batch * s.seq, width = (s.heads + 2 * s.kv_heads) * s.head_dim;
    Input in;
    in.shape = s;
    in.documents = docs.count;
    in.qkv = normal(dtype, rows, width, 1, 1, 0, width + padding);
    in.dout = normal(dtype, rows, s.heads * s.head_dim, 2);
    if (!docs.starts.empty()) in.doc_start = ints(docs.starts);
    return in;
  }
  Output output(const Input& in) {
    return {poison(in.qkv.cpu.dtype, in.dout.cpu.rows, in.dout.cpu.cols),
            poison(DType::f32, in.shape.batch * in.shape.heads, in.shape.seq),
            poison(in.qkv.cpu.dtype, in.qkv.cpu.rows, in.qkv.cpu.cols)};
  }

  void run(Tensor Twin::*side, StreamRef stream, const Input& in, const Output& out,
           const Tensor& workspace) {
    attention_forward(stream, {.shape = in.shape,
                               .qkv = in.qkv.*side,
                               .doc_start = in.doc_start.*side,
                               .documents = in.documents,
                               .out = out.out.*side,
                               .lse = out.lse.*side});
    attention_backward(stream, {.shape = in.shape,
                                .qkv = in.qkv.*side,
                                .doc_start = in.doc_start.*side,
                                .out = out.out.*side,
                                .lse = out.lse.*side,
                                .dout = in.dout.*side,
                                .dqkv = out.dqkv.*side,
                                .workspace = workspace});
  }
  Tensor space(Device::Kind kind, const Input& in) {
    const Twin twin = workspace(attention_backward_workspace(kind, in.shape, in.qkv.cpu.dtype));
    return kind == Device::Kind::cpu ? twin.cpu : twin.gpu;
  }
  Output on_gpu_only(const Input& in) {
    Output out = output(in);
    run(&Twin::gpu, *gpu, in, out, space(Device::Kind::cuda, in));
    return out;
  }

  // Captured as a graph; the shape must have run before.
  Output replayed_twice(const Input& in) {
    const Output out = output(in);
    const Tensor area = space(Device::Kind::cuda, in);
    const cudaStream_t stream = cuda::native(*gpu);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t program = nullptr;
    cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin");
    run(&Twin::gpu, *gpu, in, out, area);
    cuda::check(cudaStreamEndCapture(stream, &graph), "end");
    cuda::check(cudaGraphInstantiate(&program, graph, 0), "instantiate");
    for (int i = 0; i < 2; ++i) cuda::check(cudaGraphLaunch(program, stream), "launch");
    gpu->synchronize();
    cudaGraphExecDestroy(program);
    cudaGraphDestroy(graph);
    return out;
  }

  // Both devices; then the GPU once more, which must give the same bits.
  void check(const Input& in, bool same_bits = true) {
    const DType dtype = in.qkv.cpu.dtype;
    const AttentionShape& s = in.shape;
    SCOPED_TRACE(::testing::Message() << name_of(dtype) << " B" << s.batch << " T" << s.seq << " H" << s.heads
                                      << " G" << s.kv_heads << " D" << s.head_dim << " window " << s.window
                                      << " documents " << in.documents);
    Output out = output(in);
    run(&Twin::cpu, cpu, in, out, space(Device::Kind::cpu, in));
    run(&Twin::gpu, *gpu, in, out, space(Device::Kind::cuda, in));
    EXPECT_LT(difference(out.out), tolerance(dtype));
    EXPECT_LT(difference(out.lse), 1e-4);
    // The fused kernels multiply by probabilities and score gradients rounded to the dtype.
    const double factor = dtype == DType::f32 ? 5 : 3;
    const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
    if (s.seq > 1) {
      EXPECT_LT(difference(columns(out.dqkv, 0, q)), factor * tolerance(dtype)) << "dq";
      EXPECT_LT(difference(columns(out.dqkv, q, kv)), factor * tolerance(dtype)) << "dk";
    } else {  // a softmax over one score has no gradient, but rounding
      for (double x : on_gpu(columns(out.dqkv, 0, q + kv))) EXPECT_NEAR(x, 0, 1e-4);
    }
    EXPECT_LT(difference(columns(out.dqkv, q + kv, kv)), factor * tolerance(dtype)) << "dv";
    if (!same_bits) return;
    const Output again = on_gpu_only(in);
    EXPECT_EQ(on_gpu(out.out), on_gpu(again.out));
    EXPECT_EQ(on_gpu(out.dqkv), on_gpu(again.dqkv));
  }

  static Twin columns(const Twin& t, int64_t begin, int64_t width) {
    return {t.cpu.columns(begin, width), t.gpu.columns(begin, width)};
  }
  // ‖a − b‖ / ‖b‖ of what the GPU has.
  double apart(const Twin& a, const Twin& b) {
    const std::vector<double> x = on_gpu(a), y = on_gpu(b);
    double error = 0, norm = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      error += (x[i] - y[i]) * (x[i] - y[i]);
      norm += y[i] * y[i];
    }
    return std::sqrt(error / std::max(norm, 1e-30));
  }
};

constexpr DType kHalves[] = {DType::bf16, DType::f16};

TEST_F(Attention, FusedMatchesCpu) {
  for (DType dtype : kHalves) check(input(dtype, shape(2, 256, 8, 2, 64)));
  check(input(DType::bf16, shape(2, 384, 4, 4, 128)));
  check(input(DType::bf16, shape(1, 128, 4, 2, 24), {}, 8));
}

TEST_F(Attention, FusedTakesOddLengthsAndWindows) {
  check(input(DType::bf16, shape(3, 201, 6, 2, 64)));
  check(input(DType::bf16, shape(2, 384, 4, 2, 128, 100)));
  check(input(DType::f16, shape(1, 65, 2, 1, 64, 7)));
}

// Building a plan takes about a second: these shapes share theirs between the modes and with CanBeCaptured.
TEST_F(Attention, FusedKeepsDocumentsApart) {
  for (bool deterministic : {true, false}) {
    for (AttentionShape s : {shape(2, 256, 4, 2, 64), shape(3, 201, 4, 4, 128, 50)}) {
      s.deterministic = deterministic;
      Input in = input(DType::bf16, s, documents(s, 60, 3));
      check(in, deterministic);
      in.documents = 0;  // no bound: forward goes by the mask, too
      check(in, deterministic);
    }
  }
  const AttentionShape narrow = shape(2, 130, 2, 1, 24);
  check(input(DType::f16, narrow, documents(narrow, 40, 4)));
}

TEST_F(Attention, AtomicsMatchCpu) {
  for (AttentionShape s : {shape(2, 256, 8, 2, 64), shape(3, 201, 4, 4, 128, 50)}) {
    s.deterministic = false;
    check(input(DType::bf16, s), false);
  }
}

// Long sequences go through the gradient in parts, by sequences or by heads.
TEST_F(Attention, PartsOfTheGradientFitTogether) {
  for (const AttentionShape& s : {shape(2, 4096, 32, 32, 16), shape(1, 8192, 16, 4, 64)}) {
    Input in = input(DType::bf16, s);
    const Output ordered = on_gpu_only(in);
    in.shape.deterministic = false;
    const Output atomic = on_gpu_only(in);
    EXPECT_LT(apart(ordered.dqkv, atomic.dqkv), 1e-2) << "T " << s.seq;
  }
}

TEST_F(Attention, PlainMatchesCpu) {
  check(input(DType::f32, shape(2, 96, 4, 2, 64)));
  check(input(DType::f32, shape(3, 77, 6, 2, 24, 10), {}, 3));
  check(input(DType::f32, shape(1, 50, 2, 1, 256)));
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    check(input(dtype, shape(3, 1, 4, 2, 64)));
    check(input(dtype, shape(2, 33, 4, 4, 128)));
    check(input(dtype, shape(1, 90, 4, 2, 160)));
    check(input(dtype, shape(2, 70, 4, 2, 100)));  // no multiple of 8: not for cuDNN, however long
    const AttentionShape s = shape(3, 101, 6, 3, dtype == DType::f32 ? 40 : 136, 30);
    check(input(dtype, s, documents(s, 25, 6)));
  }
}

TEST_F(Attention, CanBeCaptured) {
  for (bool deterministic : {true, false}) {
    for (bool bounded : {true, false}) {
      SCOPED_TRACE(::testing::Message() << "deterministic " << deterministic << " bounded " << bounded);
      AttentionShape s = shape(2, 256, 4, 2, 64);
      s.deterministic = deterministic;
      Input in = input(DType::bf16, s, documents(s, 60, 3));
      if (!bounded) in.documents = 0;
      const Output eager = on_gpu_only(in), replayed = replayed_twice(in);
      EXPECT_EQ(apart(replayed.out, eager.out), 0);
      EXPECT_EQ(apart(replayed.lse, eager.lse), 0);
      EXPECT_LE(apart(replayed.dqkv, eager.dqkv), deterministic ? 0 : 1e-2);
    }
  }
}

TEST_F(Attention, RefusesASmallWorkspace) {
  const Input in = input(DType::bf16, shape(1, 128, 2, 1, 64));
  const Output out = output(in);
  Tensor small = space(Device::Kind::cuda, in);
  small.cols -= 1;
  EXPECT_THROW(run(&Twin::gpu, *gpu, in, out, small), Error);
}

}  // namespace
}  // namespace zeno::cuda_tests
