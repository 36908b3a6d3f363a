#include "zeno/data/jinja/budget.h"

#include <fmt/core.h>

namespace zeno::data::jinja {

void Budget::step(uint64_t count) {
  if (count > limits_.steps - steps_) {
    throw RenderError(
        fmt::format("more than {} steps of work; the template does not end or the conversation is too long",
                    limits_.steps));
  }
  steps_ += count;
}

void Budget::bytes(uint64_t count) {
  if (count > limits_.bytes - bytes_) {
    throw RenderError(fmt::format("more than {} bytes of text and lists created", limits_.bytes));
  }
  bytes_ += count;
}

Budget::Level::Level(Budget& budget) : budget_(budget) {
  if (budget.depth_ >= budget.limits_.depth) {
    throw RenderError(fmt::format("nested deeper than {} levels", budget.limits_.depth));
  }
  ++budget.depth_;
}

}  // namespace zeno::data::jinja
