// What every backend's optimizer does before the first element: checks the operands and works the scalars of
// the step out in double, rounded to float once.
#pragma once

#include "zeno/kernels/optimizer.h"

namespace zeno {

struct StepFactors {
  float grad;              // multiplies the gradient
  float decay;             // L2 term added to the gradient: adam, sgd
  float keep;              // 1 - lr · decay: adamw, lion
  float beta1, one_beta1;  // beta and 1 - beta
  float beta2, one_beta2;
  float step_size;  // lr / (1 - beta1^t), or lr
  float root;       // sqrt(1 - beta2^t), or 1
  float eps;
  float momentum;
};

// `grad_factor` may be unknown when work is launched: the kernel that reads it sets `grad` then.
StepFactors step_factors(const OptimizerHyper& hyper, float grad_factor = 0);

// Throws an internal Error when an operand is missing or has another size or dtype than the rule needs.
void check_update(const OptimizerUpdate& op);

}  // namespace zeno
