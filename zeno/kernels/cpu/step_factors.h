// The scalars of one optimizer step, worked out in double and rounded to float once.
#pragma once

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

}  // namespace zeno
