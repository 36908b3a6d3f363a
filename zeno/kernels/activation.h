// Activations of the feed-forward layer.
#pragma once

#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"

namespace zeno {

// y = silu(gate) · up with gate_up = [gate | up]: [R, 2F] → [R, F].
void swiglu_forward(StreamRef stream, Tensor gate_up, Tensor y);
// dgate_up may be gate_up itself. y: when given, forward's result once more; may be dy.
void swiglu_backward(StreamRef stream, Tensor gate_up, Tensor dy, Tensor dgate_up, Tensor y = {});

enum class Gelu { exact, tanh };
void gelu_forward(StreamRef stream, Gelu kind, Tensor x, Tensor y);
// dx may be x or dy.
void gelu_backward(StreamRef stream, Gelu kind, Tensor x, Tensor dy, Tensor dx);

}  // namespace zeno
