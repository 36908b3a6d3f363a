// A layer computes and owns no memory: it declares its parameters and the bytes it needs, and gets views. The
// engine (zero/) decides where parameters, gradients and saved activations live, when they exist, and in
// which order layers and micro-batches run.
//
// Legend: B sequences of T tokens are one micro-batch, R = B·T rows, C = hidden size. Activations that pass
// between layers are [R, C] in the compute dtype.
//
// A model is a list: the first layer turns tokens into activations, the middle ones map [R, C] to [R, C], the
// last one is the loss. Layers must be deterministic: running forward again gives the same bits (recompute
// relies on it).
//
// A layer does not communicate either. Where it needs what other ranks have computed, its passes are cut into
// parts, and the engine passes a joint between ranks after each part but the last. All parts of a pass get
// the same views.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "zeno/device/stream.h"
#include "zeno/device/tensor.h"
#include "zeno/nn/work.h"

namespace zeno::nn {

// How a tensor is initialised when no checkpoint provides its values.
struct Init {
  enum class Kind { zeros, ones, normal, uniform };
  Kind kind = Kind::normal;
  float stddev = 0.02f;
  float bound = 0;  // uniform: the largest absolute value
};

// Where (part of) a parameter is stored in a Hugging Face folder: rows [row, row + rows) of our parameter are
// the tensor `name`, transposed if the file stores [in, out] (GPT-2's Conv1D).
struct FileSlice {
  std::string name;
  int64_t row = 0, rows = 0;
  bool transposed = false;
};

struct Parameter {
  std::string name;            // unique in the model: "blocks.3.attn.qkv.weight"
  int64_t rows = 1, cols = 0;  // vectors are [1, n]
  bool decay = true;           // weight decay applies (matrices), or not (norms, biases)
  bool trainable = true;
  bool adapter = false;      // LoRA: `files` name tensors of an adapter folder, not of the model's
  bool sparse_rows = false;  // gradient touches few rows (untied token embedding)
  Init init;
  std::vector<FileSlice> files;

  int64_t count() const { return rows * cols; }
};

struct BatchShape {
  int64_t batch = 0, seq = 0;               // B, T
  Device::Kind device = Device::Kind::cpu;  // where it runs: workspaces differ
  bool deterministic = false;               // GPU: attention gradients in a fixed order (AttentionShape)
  bool fp8 = false;                         // GPU: projections of blocks in fp8 (linear.h)
  bool fused_swiglu = false;                // GPU: SwiGLU fused into the matmuls around it (swiglu_product.h)
  int context = 1;                          // ranks that share sequences: each has T tokens of all B
  int64_t rows() const { return batch * seq; }
  int64_t whole_seq() const { return seq * context; }  // tokens of a sequence on all ranks that share it
};

// The key/value cache of layers during generation: its number of sequences, and of tokens in each.
struct CacheShape {
  int64_t sequences = 0, capacity = 0;
};

// The tokens of one micro-batch, on the device.
struct Batch {
  BatchShape shape;
  Tensor tokens;     // i32 [1, R]
  Tensor targets;    // i32 [1, R]; -1 = ignored
  Tensor positions;  // i32 [1, R]
  // i32 [1, B · tokens of a whole sequence] (see AttentionForward); empty view: one document per sequence.
  Tensor doc_start;
  int64_t documents = 0;  // number of documents, if there is doc_start; known on the host
  // Rows with a target, in order: i32 [1, ≤ R]. Their number is known on the host before the step.
  Tensor valid_rows;
  int64_t valid_count = 0;
  // Key of the random numbers of this step and micro-batch (dropout, noise): i64 [1, 1] on the device. Empty
  // view: nothing is random (evaluation, generation).
  Tensor noise;
  // With a cache (ForwardArgs), positions count from the start of the sequence, and `slots`, i32 [1, B], says
  // which sequence of the cache each sequence of the batch continues.
  CacheShape cache;
  Tensor slots;
};

// What is recomputed in backward. none: nothing; forward saves everything. selective: cheap element-wise
// results. full: the whole forward; only the layer's input is saved.
enum class Recompute { none, selective, full };

struct LayerSizes {
  size_t saved = 0;      // bytes kept from forward to backward
  size_t workspace = 0;  // bytes of scratch during forward or backward
};

// What the ranks that share sequences exchange between two parts of a layer's pass: each rank sends every
// rank a slice of each sequence, in rank order, and receives as much.
struct Joint {
  Tensor send, recv;  // equal in size; [B · ranks · rows of a slice, columns]
};

// Views handed to a layer, in the order of parameters(). Gradients are fp32 (or the accumulation dtype) and
// are added to, or written if `fresh`; an empty view is a frozen parameter, to be skipped.
struct ForwardArgs {
  StreamRef stream;
  const Batch& batch;
  std::span<const Tensor> params;
  Tensor x;          // input [R, C]; empty for the first layer
  Tensor y;          // output [R, C], written; empty when only `saved` is wanted (recompute)
  Tensor saved;      // u8, LayerSizes::saved bytes; empty when nothing has to be kept (evaluation)
  Tensor workspace;  // u8
  Tensor cache;      // u8, cache_bytes(), for generation; empty: tokens see only their own micro-batch
  int part = 0;
};

struct BackwardArgs {
  StreamRef stream;
  const Batch& batch;
  std::span<const Tensor> params;
  std::span<const Tensor> grads;
  Tensor x;   // input of forward [R, C]
  Tensor dy;  // [R, C]; may be overwritten
  Tensor dx;  // [R, C], written; may be dy; empty when nothing below is trained
  Tensor saved, workspace;
  bool fresh = false;  // gradients hold nothing yet: write them (only if writes_gradients())
  int part = 0;
};

// The joint after `part` of a pass over a micro-batch.
struct JointArgs {
  BatchShape shape;
  DType compute = DType::f32;
  Recompute recompute = Recompute::none;  // as in the pass
  bool backward = false;
  Tensor saved, workspace;  // those of the parts; both empty: only sizes are wanted
  int part = 0;
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::string name() const = 0;
  virtual std::vector<Parameter> parameters() const = 0;
  virtual LayerSizes sizes(BatchShape shape, DType compute, Recompute recompute) const = 0;
  virtual void forward(const ForwardArgs& args, Recompute recompute) const = 0;
  // `recompute` is what forward was called with to fill `saved`. It is never full, because then the engine
  // has run forward again.
  virtual void backward(const BackwardArgs& args, Recompute recompute) const = 0;
  // The number of parts that each pass is cut into.
  virtual int parts(BatchShape) const { return 1; }
  virtual Joint joint(const JointArgs&) const { fail(ErrorKind::internal, "[{}] has no joints", name()); }
  // What forward and backward do; `recompute` as in backward().
  virtual LayerWork work(BatchShape shape, DType compute, Recompute recompute) const = 0;
  // Whether backward can write its gradients instead of adding to them. Then they need not be cleared before
  // the first one.
  virtual bool writes_gradients() const { return false; }
  // Whether backward reads the parameters. (An embedding's does not, so the engine need not gather them.)
  virtual bool backward_needs_params() const { return true; }
  // Bytes of the cache of earlier tokens; 0 if the layer has none.
  virtual size_t cache_bytes(CacheShape, DType) const { return 0; }
};

// The last layer: loss and, in the same pass, the gradients of its input and parameters, so that logits exist
// only one chunk at a time and are computed once.
struct LossArgs {
  StreamRef stream;
  const Batch& batch;
  std::span<const Tensor> params;
  std::span<const Tensor> grads;  // empty span: evaluation, loss only
  Tensor x;                       // [R, C]
  Tensor dx;                      // [R, C], written; may be x; empty in evaluation
  Tensor losses;                  // f32 [1, R], one per valid row, written
  Tensor hits;                    // i32 [1, R], evaluation only, optional
  float grad_scale = 1;           // loss scale / valid tokens of the whole global batch
  Tensor workspace;               // u8
  bool fresh = false;             // as in BackwardArgs
};

// Logits instead of a loss; the caller has picked the rows.
struct LogitsArgs {
  StreamRef stream;
  std::span<const Tensor> params;
  Tensor x;          // [r, C]
  Tensor logits;     // f32 [r, V], written
  Tensor workspace;  // u8, logits_workspace(r)
};

class LossLayer {
 public:
  virtual ~LossLayer() = default;
  virtual std::string name() const = 0;
  virtual std::vector<Parameter> parameters() const = 0;
  virtual size_t workspace(BatchShape shape, DType compute) const = 0;
  virtual void run(const LossArgs& args) const = 0;
  // For generation. A layer without logits throws.
  virtual size_t logits_workspace(int64_t, DType) const { return 0; }
  virtual void logits(const LogitsArgs&) const { ensure(false, "[{}] has no logits", name()); }
  virtual bool writes_gradients() const { return false; }
  // The work of run(): what evaluation does too, and what only training does.
  virtual LayerWork work(BatchShape shape, DType compute) const = 0;
};

// A whole model. A name that occurs in two layers is one tied parameter (same shape), owned by the first.
struct LayerList {
  int64_t hidden = 0;  // C
  int64_t vocab = 0;
  std::vector<std::unique_ptr<Layer>> layers;
  std::unique_ptr<LossLayer> loss;
  size_t table_bytes = 0;  // constants that layers share: the cos/sin table of rotary embeddings
};

}  // namespace zeno::nn
