// A block's forward must have the same bits whether it keeps intermediates or not: recompute relies on it.
#include "zeno/nn/block.h"

#include "tests/cuda/parity.h"

namespace zeno::cuda_tests {
namespace {

class CudaBlock : public Parity {
 protected:
  static nn::BlockOptions options(bool gpt2) {
    nn::BlockOptions o;
    o.hidden = 64;
    o.heads = 4;
    o.kv_heads = gpt2 ? 4 : 2;
    o.head_dim = 16;
    o.intermediate = 128;
    o.norm = gpt2 ? nn::Norm::layer : nn::Norm::rms;
    o.mlp = gpt2 ? nn::BlockOptions::Mlp::gelu_tanh : nn::BlockOptions::Mlp::swiglu;
    o.qkv_bias = o.out_bias = o.mlp_bias = gpt2;
    if (!gpt2) o.rope = std::make_shared<nn::RopeTable>(128, 16, 10000.0);
    o.name = std::string("blocks.0");
    return o;
  }

  // The block's output with or without saving; `without`: parameters whose name holds it are zero.
  std::vector<double> output(const nn::Layer& block, bool save, const std::string& without) {
    const nn::BatchShape shape{2, 80, Device::Kind::cuda, true};
    std::vector<Tensor> params;
    for (const nn::Parameter& p : block.parameters()) {
      const bool zero = !without.empty() && p.name.find(without) != std::string::npos;
      params.push_back(
          normal(DType::bf16, p.rows, p.cols, std::hash<std::string>{}(p.name), zero ? 0 : 0.2).gpu);
    }
    std::vector<int32_t> positions;
    for (int64_t r = 0; r < shape.rows(); ++r) positions.push_back(int32_t(r % shape.seq));
    nn::Batch batch{.shape = shape, .positions = ints(positions).gpu};
    const nn::LayerSizes sizes = block.sizes(shape, DType::bf16, nn::Recompute::none);
    const Twin x = normal(DType::bf16, shape.rows(), 64, 1), y = poison(DType::bf16, shape.rows(), 64);
    block.forward({.stream = *gpu,
                   .batch = batch,
                   .params = params,
                   .x = x.gpu,
                   .y = y.gpu,
                   .saved = save ? workspace(sizes.saved).gpu : Tensor{},
                   .workspace = workspace(sizes.workspace).gpu},
                  nn::Recompute::none);
    return on_gpu(y);
  }
};

TEST_F(CudaBlock, KeepingNothingGivesTheSameBits) {
  for (bool gpt2 : {false, true}) {
    const auto block = nn::make_block(options(gpt2));
    // Without the second projection of one half, the other half's output is what comes out.
    for (const char* without : {"down", "out", ""}) {
      EXPECT_EQ(output(*block, true, without), output(*block, false, without))
          << (gpt2 ? "gpt2" : "llama") << " without " << without;
    }
  }
}

}  // namespace
}  // namespace zeno::cuda_tests
