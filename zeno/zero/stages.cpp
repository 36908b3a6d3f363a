#include "zeno/zero/stages.h"

#include <algorithm>
#include <numeric>

#include "zeno/base/error.h"

namespace zeno::zero {
namespace {

double flops_of(const nn::LayerWork& work) { return work.forward.flops() + work.backward.flops(); }

// The ends of stages that cost at most `limit` each, filled from the left; later stages may get less.
std::vector<int> fill(const std::vector<double>& costs, int count, double limit) {
  const int layers = int(costs.size());
  std::vector<int> ends;
  double sum = 0;
  for (int layer = 0; layer < layers; ++layer) {
    const int open = count - int(ends.size());  // stages left, including the one being filled
    const bool full = layer > 0 && (ends.empty() || ends.back() < layer) &&
                      (sum + costs[size_t(layer)] > limit || layers - layer == open - 1);
    if (full && open > 1) {
      ends.push_back(layer);
      sum = 0;
    }
    sum += costs[size_t(layer)];
  }
  ends.push_back(layers);
  return ends;
}

double slowest(const std::vector<double>& costs, const std::vector<int>& ends) {
  double most = 0;
  int first = 0;
  for (const int end : ends) {
    most = std::max(most, std::accumulate(costs.begin() + first, costs.begin() + end, 0.0));
    first = end;
  }
  return most;
}

}  // namespace

std::vector<Stage> cut_stages(const nn::LayerList& model, nn::BatchShape shape, DType compute, int count) {
  std::vector<double> costs;
  for (const auto& layer : model.layers)
    costs.push_back(flops_of(layer->work(shape, compute, nn::Recompute::none)));
  costs.push_back(flops_of(model.loss->work(shape, compute)));
  const int layers = int(costs.size());
  require(count <= layers, ErrorKind::usage,
          "[pipeline] --pipe: got {} stages, expected at most {}, the layers of the model", count, layers);
  // Every limit that fits is at least the mean; bisection finds the lowest to one part in 2^40.
  double low = std::accumulate(costs.begin(), costs.end(), 0.0) / count, high = low * count;
  std::vector<int> ends = fill(costs, count, high);
  constexpr int kHalvings = 40;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    const std::vector<int> tried = fill(costs, count, middle);
    const bool better = slowest(costs, tried) <= slowest(costs, ends);
    if (better) ends = tried;
    (slowest(costs, tried) <= middle ? high : low) = middle;
  }
  std::vector<Stage> stages;
  for (int i = 0; i < count; ++i)
    stages.push_back({i, count, i == 0 ? 0 : ends[size_t(i) - 1], ends[size_t(i)]});
  return stages;
}

}  // namespace zeno::zero
