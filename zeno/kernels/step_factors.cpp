#include "zeno/kernels/step_factors.h"

#include <cmath>

namespace zeno {

using Kind = OptimizerHyper::Kind;

StepFactors step_factors(const OptimizerHyper& h, float grad_factor) {
  const bool adam = h.kind == Kind::adam || h.kind == Kind::adamw;
  const bool correct = adam && h.bias_correction;
  const double correction1 = correct ? 1 - std::pow(h.beta1, double(h.step)) : 1;
  const double correction2 = correct ? 1 - std::pow(h.beta2, double(h.step)) : 1;
  return {.grad = grad_factor,
          .decay = float(h.weight_decay),
          .keep = float(1 - h.lr * h.weight_decay),
          .beta1 = float(h.beta1),
          .one_beta1 = float(1 - h.beta1),
          .beta2 = float(h.beta2),
          .one_beta2 = float(1 - h.beta2),
          .step_size = float(h.lr / correction1),
          .root = float(std::sqrt(correction2)),
          .eps = float(h.eps),
          .momentum = float(h.momentum)};
}

void check_update(const OptimizerUpdate& op) {
  const Kind kind = op.hyper.kind;
  const int64_t n = op.master.count();
  const auto flat = [&](const char* name, const Tensor& t, bool needed) {
    if (!t && !needed) return;
    ensure(t.contiguous() && t.count() == n, "[optimizer] {}: got {} elements, expected {} like master", name,
           t.count(), n);
  };
  const auto state = [&](const char* name, const Tensor& t, bool needed, bool cells) {
    flat(name, t, needed);
    ensure(!t || t.dtype == DType::f32 || t.dtype == DType::bf16 || (cells && t.dtype == DType::u8),
           "[optimizer] {}: got {}, expected f32, bf16 or, for moments, cells in u8", name, name_of(t.dtype));
  };
  const bool adam = kind == Kind::adam || kind == Kind::adamw;
  flat("grad", op.grad, true);
  const bool split = op.master.dtype == DType::i16;
  if (!split) state("master", op.master, true, false);
  state("m", op.m, adam || kind == Kind::lion || op.hyper.momentum != 0, true);
  state("v", op.v, adam, true);
  flat("param", op.param, split);
  ensure(!split || op.param.dtype == DType::bf16,
         "[optimizer] param: got {}, expected bf16, of which masters are the rest", name_of(op.param.dtype));
  ensure(is_float(op.grad.dtype) && is_float(op.param.dtype),
         "[optimizer] grad, param: got {}, {}, expected floating types", name_of(op.grad.dtype),
         name_of(op.param.dtype));
  ensure(op.grad_factor != nullptr, "[optimizer] grad_factor: got null, expected an address");
  ensure(op.hyper.step >= 1, "[optimizer] step: got {}, expected 1 or more", op.hyper.step);
}

}  // namespace zeno
