#include "zeno/plan/estimate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "zeno/kernels/moment_cells.h"

namespace zeno::plan {
namespace {

constexpr int64_t kHead = 128;

double moment_bytes_each(DType dtype) {
  constexpr int64_t kMany = 1 << 20;
  return dtype == DType::u8 ? double(moment_bytes(kMany)) / kMany : double(size_of(dtype));
}

// 4 matrices of attention and 3 of 8/3·hidden make 12·hidden² in a block; embedding and head are not tied.
double params_of(double hidden, double layers, double vocab) {
  return 12 * hidden * hidden * layers + 2 * vocab * hidden;
}

}  // namespace

StateBytes model_states(double params, const zero::Policy& given, const comm::Mesh& mesh) {
  const zero::Policy policy = zero::normalized(given, mesh);
  const auto share = [&](comm::Axes axes) { return params / mesh.size(axes); };
  const double kept = share(policy.optimizer);
  const double moment = moment_bytes_each(policy.moments.value_or(policy.states));
  // In full precision the parameters are their own masters, unless they come to the device for each use.
  const zero::Offload& offload = policy.offload;
  const bool moves = (!policy.params.empty() || mesh.data_ranks() == 1) &&
                     (offload.params == Tier::disk || (offload.params == Tier::host && offload.far_host));
  const bool own_masters = policy.compute == policy.states && !moves;
  return {.parameters = share(policy.params) * double(size_of(policy.compute)),
          .gradients = share(policy.grads) * double(size_of(policy.grad)),
          .masters = own_masters ? 0 : kept * double(size_of(policy.states)),
          .moments = kept * moment * (int(policy.moments_first) + int(policy.moments_second))};
}

double most_params(double bytes, const zero::Policy& policy, const comm::Mesh& mesh) {
  return bytes / model_states(1, policy, mesh).total();
}

model::InitOptions shape_of_size(double params, int64_t sharing) {
  model::InitOptions shape;
  shape.vocab = params >= 1e8 ? 32000 : 512;
  const double vocab = double(shape.vocab);
  int64_t usual = 1;
  while (params_of(double((usual + 1) * kHead), double(usual + 1), vocab) <= params) ++usual;
  // Widths come in steps: one or two blocks more or less may come nearer.
  double least = std::numeric_limits<double>::max();
  for (int64_t layers = std::max<int64_t>(1, usual - 2); layers <= usual + 2; ++layers) {
    const double a = 12 * double(layers), b = 2 * vocab;
    const double width = (std::sqrt(b * b + 4 * a * params) - b) / (2 * a);
    const int64_t head = width < kHead ? 8 : kHead;
    const int64_t step = head * sharing;
    const int64_t hidden = std::max<int64_t>(1, std::llround(width / double(step))) * step;
    const double error = std::abs(params_of(double(hidden), double(layers), vocab) - params);
    if (error >= least) continue;
    least = error;
    shape.layers = layers;
    shape.hidden = hidden;
    shape.heads = hidden / head;
  }
  return shape;
}

}  // namespace zeno::plan
