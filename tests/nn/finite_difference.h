// A gradient against the losses around a point.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/nn/tiny_model.h"

namespace zeno::test {

// The derivative of the loss along a random direction of each parameter. fp32 losses carry about 1e-6 of
// rounding, so the step is large and the tolerance 1 % of the gradient's length; parity tests look at the
// last digits.
inline void expect_finite_differences(TinyModel& model,
                                      const std::map<std::string, std::vector<float>>& gradients) {
  uint64_t stream = 100;
  for (const auto& [name, g] : gradients) {
    ++stream;
    std::vector<float>& w = model.weights(name);
    const std::vector<float> start = w;
    const double step = 0.02 / std::sqrt(double(w.size()));
    double expected = 0, length = 0;
    const auto direction = [&](size_t i) { return random_bits(3, stream, i) & 1 ? 1.0 : -1.0; };
    for (size_t i = 0; i < g.size(); ++i) {
      expected += g[i] * direction(i);
      length += double(g[i]) * g[i];
    }
    const auto loss_at = [&](double distance) {
      for (size_t i = 0; i < w.size(); ++i) w[i] = float(start[i] + distance * direction(i));
      return model.evaluate();
    };
    const double measured = (loss_at(step) - loss_at(-step)) / (2 * step);
    w = start;
    // The length of the direction is √n; a wrong gradient misses by about √n·‖g‖/√n = ‖g‖.
    const double rounding = 1e-6 / step;
    EXPECT_NEAR(measured, expected, 0.01 * std::sqrt(length) + rounding)
        << name << " |g| " << std::sqrt(length);
    EXPECT_GT(length, 0) << name;
  }
}

}  // namespace zeno::test
