// Every public kernel runs where its stream is. Without CUDA in the build its half of each pair is discarded
// before the linker would look for it, and CUDA streams cannot be made.
#include "zeno/device/cuda/memory.h"
#include "zeno/kernels/activation.h"
#include "zeno/kernels/attention.h"
#include "zeno/kernels/attention_decode.h"
#include "zeno/kernels/attention_space.h"
#include "zeno/kernels/cross_entropy.h"
#include "zeno/kernels/elementwise.h"
#include "zeno/kernels/embedding.h"
#include "zeno/kernels/fp8.h"
#include "zeno/kernels/grad_scan.h"
#include "zeno/kernels/head_slices.h"
#include "zeno/kernels/matmul.h"
#include "zeno/kernels/nf4.h"
#include "zeno/kernels/noise.h"
#include "zeno/kernels/norm.h"
#include "zeno/kernels/optimizer.h"
#include "zeno/kernels/rope.h"
#include "zeno/kernels/wire_cells.h"

namespace zeno {

// name, parameters after the stream, the same as arguments
#define ZENO_KERNELS(K)                                                                                  \
  K(matmul, (const Matmul& op), (op))                                                                    \
  K(bias_backward, (Tensor dy, Tensor dbias), (dy, dbias))                                               \
  K(fp8_quantise, (const Fp8Quantise& op), (op))                                                         \
  K(fp8_matmul, (const Fp8Product& op), (op))                                                            \
  K(attention_forward, (const AttentionForward& op), (op))                                               \
  K(attention_backward, (const AttentionBackward& op), (op))                                             \
  K(attention_decode, (const AttentionDecode& op), (op))                                                 \
  K(rmsnorm_forward, (const NormForward& op), (op))                                                      \
  K(rmsnorm_backward, (const NormBackward& op), (op))                                                    \
  K(layernorm_forward, (const NormForward& op), (op))                                                    \
  K(layernorm_backward, (const NormBackward& op), (op))                                                  \
  K(rope_forward, (const RopeForward& op), (op))                                                         \
  K(rope_backward, (const RopeBackward& op), (op))                                                       \
  K(pack_heads, (const HeadSlices& op), (op))                                                            \
  K(unpack_heads, (const HeadSlices& op), (op))                                                          \
  K(swiglu_forward, (Tensor gate_up, Tensor y), (gate_up, y))                                            \
  K(swiglu_backward, (Tensor gate_up, Tensor dy, Tensor dgate_up, Tensor y), (gate_up, dy, dgate_up, y)) \
  K(gelu_forward, (Gelu kind, Tensor x, Tensor y), (kind, x, y))                                         \
  K(gelu_backward, (Gelu kind, Tensor x, Tensor dy, Tensor dx), (kind, x, dy, dx))                       \
  K(embedding_forward, (const EmbeddingForward& op), (op))                                               \
  K(embedding_backward, (Tensor ids, Tensor dy, Tensor dtable), (ids, dy, dtable))                       \
  K(cross_entropy, (const CrossEntropy& op), (op))                                                       \
  K(gather_rows, (Tensor src, Tensor index, Tensor dst), (src, index, dst))                              \
  K(scatter_rows, (Tensor src, Tensor index, Tensor dst), (src, index, dst))                             \
  K(nf4_decode, (const Nf4Cell* cells, Tensor y), (cells, y))                                            \
  K(wire_encode, (WireCode code, Tensor x, std::byte * cells), (code, x, cells))                         \
  K(wire_sum, (const WireSum& op), (op))                                                                 \
  K(wire_decode, (WireCode code, const std::byte* cells, Tensor y), (code, cells, y))                    \
  K(cast, (Tensor x, Tensor y), (x, y))                                                                  \
  K(add, (Tensor a, Tensor b, Tensor y), (a, b, y))                                                      \
  K(scale, (Tensor x, float factor), (x, factor))                                                        \
  K(dropout, (const Dropout& op), (op))                                                                  \
  K(add_uniform_noise, (const UniformNoise& op), (op))                                                   \
  K(grad_scan, (Tensor grad, GradScan * result, uint64_t place), (grad, result, place))                  \
  K(sum_exactly, (Tensor values, ExactSum * sum), (values, sum))                                         \
  K(optimizer_update, (const OptimizerUpdate& op), (op))

#define ZENO_UNPACK(...) __VA_ARGS__
#define ZENO_DECLARE(name, parameters, arguments) void name(StreamRef stream, ZENO_UNPACK parameters);
#define ZENO_DEFINE(name, parameters, arguments)          \
  void name(StreamRef stream, ZENO_UNPACK parameters) {   \
    if constexpr (ZENO_CUDA) {                            \
      if (stream.device().kind == Device::Kind::cuda) {   \
        return cuda::name(stream, ZENO_UNPACK arguments); \
      }                                                   \
    }                                                     \
    cpu::name(stream, ZENO_UNPACK arguments);             \
  }

namespace cpu {
ZENO_KERNELS(ZENO_DECLARE)
size_t kernel_scratch_bytes();
size_t attention_backward_workspace(const AttentionShape& shape);
}  // namespace cpu
namespace cuda {
ZENO_KERNELS(ZENO_DECLARE)
}  // namespace cuda
ZENO_KERNELS(ZENO_DEFINE)

size_t kernel_scratch_bytes(Device::Kind kind) {
  return kind == Device::Kind::cpu ? cpu::kernel_scratch_bytes() : cuda::kScratchBytes;
}

size_t attention_backward_workspace(Device::Kind kind, const AttentionShape& shape, DType dtype) {
  if (kind == Device::Kind::cuda) return cuda::attention_backward_workspace(shape, dtype);
  return cpu::attention_backward_workspace(shape);
}

}  // namespace zeno
