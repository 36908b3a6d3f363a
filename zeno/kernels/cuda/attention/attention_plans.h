// The cuDNN plans of attention, built at the first call of a shape and kept per thread: ranks may be threads,
// and cuDNN promises neither plans nor handles to several of them. Building takes about a second, running is
// async.
#pragma once

#include <initializer_list>

#include "zeno/device/stream.h"
#include "zeno/kernels/cuda/attention/attention_graph.h"
#include "zeno/kernels/cuda/attention/cudnn_plan.h"

namespace zeno::cuda {

struct AttentionPlan {
  CudnnPlan plan;
  AttentionTensorIds ids;
};

enum class AttentionPass { forward, backward };

// Of this thread and the stream's device. Fails if cuDNN needs more than `workspace` bytes.
const AttentionPlan& attention_plan(StreamRef stream, AttentionPass pass, const AttentionGraphSpec& spec,
                                    size_t workspace);

// Bindings of tensors the graph does not have are skipped.
void run_attention_plan(StreamRef stream, const AttentionPlan& plan,
                        std::initializer_list<CudnnBinding> tensors, std::byte* workspace);

}  // namespace zeno::cuda
