// Fused optimizer updates over flat shards: one pass reads gradient, master and moments, and writes master,
// moments and the compute-precision copy. Element-wise, so any cut of the shard gives the same bits.
#pragma once

#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"

namespace zeno {

struct OptimizerHyper {
  enum class Kind { adamw, adam, sgd, lion };  // adam: L2 decay added to the gradient
  Kind kind = Kind::adamw;
  // Double, as in PyTorch: 1 - beta2 taken from a float 0.999 would be off by 1e-5.
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;          // sgd
  bool bias_correction = true;  // adam, adamw
  int64_t step = 1;             // 1-based, the same for all parts of a step
};

struct OptimizerUpdate {
  OptimizerHyper hyper;
  Tensor grad;  // flat [1, n], fp32/bf16/fp16
  // States [1, n], each fp32 or bf16; moments also u8, which means cells (moment_cells.h), element 0 being
  // the first of a cell. Results stored in less than fp32 are rounded stochastically (stochastic_rounding.h).
  // Masters also i16: what bf16 parameters leave of them (master_rest.h).
  Tensor master;
  Tensor m, v;  // v: adam/adamw only; m: empty for sgd without momentum
  // Optional [1, n] copy of master in the compute dtype; empty when masters are the parameters; read too when
  // masters are the rest.
  Tensor param;
  // Multiplies every gradient: 1 / (loss scale · clip). Read when the kernel runs, so it may be computed by
  // earlier work on the stream; 0 means: skip the update (overflow) and leave the states untouched. The copy
  // is written in either case, so it may be in a new place.
  const float* grad_factor = nullptr;
  // For rounded states: the run's seed, and the place of element 0 in the whole, the same however it is cut.
  uint64_t seed = 0;
  int64_t first_index = 0;
};

void optimizer_update(StreamRef stream, const OptimizerUpdate& op);

}  // namespace zeno
