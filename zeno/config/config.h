// Everything a training run needs to know, as plain values grouped by concern. The initialisers are the plain
// defaults, to which config_defaults adds those of a fine-tune; config_keys lists the JSON key of each field,
// config_parser fills it. A parsed and resolved TrainConfig holds final values only: nothing here is "auto".
// Plain data: copy it freely, no thread rule.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/base/dtype.h"
#include "zeno/config/loss_scale.h"
#include "zeno/config/schedule.h"
#include "zeno/data/dataset/options.h"

namespace zeno::config {

enum class OffloadDevice { none, cpu, nvme, automatic };
enum class OptimizerKind { adamw, adam, sgd, lion };  // adam: weight decay added to the gradient
enum class RecomputeMode { none, selective, full, automatic };
enum class MicroBatchOrder { horizontal, vertical };
enum class ReductionMode { tree, native };
enum class RunDevice { automatic, cpu, cuda };
enum class MatmulDtype { automatic, bf16, fp8 };          // automatic: the compute dtype
enum class MomentDtype { automatic, fp32, bf16, eight };  // automatic: as masters
enum class BaseDtype { none, nf4 };                       // none: the compute dtype
using data::DataFormat, data::LossOn, data::Packing, data::TooLong;
enum class BestMetric { loss, accuracy };

struct OffloadOptimizerConfig {
  OffloadDevice device = OffloadDevice::none;
  std::string nvme_path;
  int64_t buffer_count = 4;
  double ratio = 1;       // part of the optimizer state that is offloaded
  double cpu_share = -1;  // of the states in host memory, updated by the CPU; below 0: measured
};

struct OffloadParamConfig {
  OffloadDevice device = OffloadDevice::none;
  std::string nvme_path;
  int64_t max_in_cpu = 1'000'000'000;  // elements
};

// Sizes and thresholds are element counts, as in DeepSpeed.
struct ZeroConfig {
  int64_t stage = 0;
  int64_t shard_group = 0;           // ranks that share one copy of what the stage shards; 1 or less: all
  int64_t param_group = 0;           // the same for parameters only
  bool quantized_weights = false;    // gathered for use in eight bits
  bool quantized_gradients = false;  // reduced in eight and four bits
  bool contiguous_gradients = true;
  bool reduce_scatter = true;
  bool overlap_comm = false;  // resolved: true at stage 3 unless given
  int64_t reduce_bucket_size = 500'000'000;
  int64_t allgather_bucket_size = 500'000'000;
  int64_t prefetch_bucket_size = 50'000'000;  // 0: no prefetch
  int64_t param_persistence_threshold = 100'000;
  int64_t model_persistence_threshold = std::numeric_limits<int64_t>::max();
  int64_t max_live_parameters = 1'000'000'000;
  int64_t max_reuse_distance = 0;  // DeepSpeed: 1e9, which keeps small models gathered
  int64_t sub_group_size = 1'000'000'000;
  bool round_robin_gradients = false;
  bool ignore_unused_parameters = true;
  OffloadOptimizerConfig offload_optimizer;
  OffloadParamConfig offload_param;
};

// Ranks along the axes of the mesh that are no data parallelism; the others see different data.
struct ParallelConfig {
  int64_t pipe = 1;     // stages of a pipeline
  int64_t context = 1;  // that share sequences
};

struct PrecisionConfig {
  DType compute = DType::f32;        // dtype of the working weights and activations
  DType grad_accum = DType::f32;     // DeepSpeed: the compute dtype
  DType communication = DType::f32;  // of the gradient reduction; resolved: grad_accum unless given
  DType param_dtype = DType::f32;    // as written; must be `compute` when given
  bool fp16_enabled = false, bf16_enabled = false;  // as written; `compute` is what counts
  MatmulDtype matmul = MatmulDtype::automatic;      // of the matmuls in blocks
  DType states = DType::f32;                        // of masters and moments
  MomentDtype moments = MomentDtype::automatic;
  LossScaleConfig loss_scale;  // fp16 only
};

// 0: not given. After resolve_batch: train_batch = micro_batch · grad_accum · ranks.
struct BatchConfig {
  int64_t train_batch = 0;
  int64_t micro_batch = 0;  // per rank
  int64_t grad_accum = 0;
};

struct OptimizerConfig {
  std::string type = "AdamW";                 // as written
  OptimizerKind kind = OptimizerKind::adamw;  // resolved from type and adam_w_mode
  double lr = 2e-5;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;  // sgd
  bool bias_correction = true;
  bool adam_w_mode = true;
  bool torch_adam = false;
  double gradient_clipping = 1.0;  // global L2 norm; 0: off
};

struct RecomputeConfig {
  RecomputeMode mode = RecomputeMode::none;
  int64_t every = 1;               // keep the input of every k-th block
  bool offload = false;            // keep those inputs in host memory until backward
  bool enabled = false;            // activation_checkpointing.enabled: not a DeepSpeed key, but in use
  int64_t number_checkpoints = 0;  // DeepSpeed's count of kept blocks; resolve_model turns it into `every`
};

struct RunConfig {
  std::string model, out;
  std::vector<std::string> data;
  int64_t seq_len = 0;  // 0: the model's own, capped by the trainer
  int64_t steps = 0;    // 0: use epochs
  double epochs = 1;
  int64_t ranks = 0;  // 0: as launched, else 1
  std::string cache;  // folder for data computed once; empty: ~/.cache/zeno
  RunDevice device = RunDevice::automatic;
  MicroBatchOrder order = MicroBatchOrder::horizontal;
  ReductionMode reduction = ReductionMode::tree;
  bool reproducible = false;   // the same bits at 1, 2, 4 and 8 ranks
  bool deterministic = false;  // GPU: the same bits in every run
  bool limit_gpu_clock = false;
  int64_t seed = 42;
  int64_t save_every = 0;       // steps between checkpoints; 0: none
  int64_t keep_last = 2;        // checkpoints; 0: all
  int64_t keep_every = 0;       // also those whose step is a multiple; 0: none
  int64_t save_deadline_s = 0;  // time for saving after a signal to stop; 0: no limit
  std::string resume;           // "", "auto" or a folder
  int64_t max_restarts = 0;     // of a run that dies; 0: it is not supervised
  std::string launcher;         // command that starts the ranks as processes; empty: they are threads
  int64_t peer_snapshot = 0;    // steps between copies of the state in memory; 0: none
  std::string peer_snapshot_dir = "/dev/shm";
  std::string log, trace, done_file;
  int64_t steps_per_print = 0;   // 0: about every 5 %
  double deadline_s = 300;       // longest wait for another rank
  double disk_deadline_s = 300;  // longest wait for a disk to respond
  bool choose = false;           // the planner chooses what is left open; on without a config file
  std::string device_mem;        // "80GB", device memory per rank; empty: all free memory
  std::string host_mem;          // host memory for all ranks of a host; empty: all free memory
};

// How lines of files become training samples.
struct DataConfig {
  DataFormat format = DataFormat::automatic;
  std::string columns;         // "prompt=question,completion=answer": which column to read each field from
  std::string chat_template;   // empty: the folder's; a preset or a file
  std::string template_extra;  // JSON object of extra template variables
  std::string chat_date;       // YYYY-MM-DD for templates that ask for the date; empty: none
  LossOn loss_on = LossOn::automatic;
  Packing packing = Packing::automatic;
  TooLong too_long = TooLong::truncate;
  bool skip_bad_lines = false;
  bool shuffle = true;
  int64_t max_samples = 0;  // 0: all
  double neftune_alpha = 0;
};

struct EvalConfig {
  std::vector<std::string> data;  // separate files
  double split = 0;   // or this fraction of the training samples, never trained on; >= 1: number of samples
  int64_t every = 0;  // steps; 0: after each epoch and at the end, if there is evaluation data
  bool on_start = false;
  int64_t max_samples = 0;  // 0: all
  BestMetric best_metric = BestMetric::loss;
  bool keep_best = false;      // keep the best model as the result instead of the last
  int64_t early_stopping = 0;  // evaluations without improvement before the run ends; 0: never
  double early_stopping_delta = 0;
};

// Adapters instead of full weights; rank 0: train everything.
struct LoraConfig {
  int64_t rank = 0;
  double alpha = 0;  // 0: twice the rank
  double dropout = 0;
  std::vector<std::string> targets;  // empty: all linear layers of blocks
  std::vector<std::string> modules_to_save;
  bool rslora = false;
  bool dora = false;
  BaseDtype quantize_base = BaseDtype::none;  // of the frozen weights of blocks
  std::string adapter;                        // adapter folder to continue training
};

// What to do about losses that go wrong.
struct WatchConfig {
  double spike_factor = 3;    // report a loss this many times the running mean; 0: never
  int64_t max_bad_steps = 0;  // end the run after this many NaN or spiking steps in a row; 0: never
};

struct TrainConfig {
  ZeroConfig zero;
  ParallelConfig parallel;
  PrecisionConfig precision;
  BatchConfig batch;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  RecomputeConfig recompute;
  bool sparse_gradients = false;
  RunConfig run;
  DataConfig data;
  EvalConfig eval;
  LoraConfig lora;
  WatchConfig watch;
};

// Names of the values of each enum, in order: what the JSON and the flags say.
template <class E>
inline constexpr std::array<std::string_view, 0> kNames{};
template <>
inline constexpr std::array<std::string_view, 4> kNames<OffloadDevice>{"none", "cpu", "nvme", "auto"};
template <>
inline constexpr std::array<std::string_view, 4> kNames<OptimizerKind>{"adamw", "adam", "sgd", "lion"};
template <>
inline constexpr std::array<std::string_view, 4> kNames<RecomputeMode>{"none", "selective", "full", "auto"};
template <>
inline constexpr std::array<std::string_view, 2> kNames<MicroBatchOrder>{"horizontal", "vertical"};
template <>
inline constexpr std::array<std::string_view, 2> kNames<ReductionMode>{"tree", "native"};
template <>
inline constexpr std::array<std::string_view, 3> kNames<RunDevice>{"auto", "cpu", "cuda"};
template <>
inline constexpr std::array<std::string_view, 3> kNames<MatmulDtype>{"auto", "bf16", "fp8"};
template <>
inline constexpr std::array<std::string_view, 4> kNames<MomentDtype>{"auto", "fp32", "bf16", "8bit"};
template <>
inline constexpr std::array<std::string_view, 2> kNames<BaseDtype>{"none", "nf4"};
template <>
inline constexpr std::array<std::string_view, 7> kNames<DataFormat>{
    "auto", "messages", "sharegpt", "alpaca", "prompt_completion", "text", "tokens"};
template <>
inline constexpr std::array<std::string_view, 5> kNames<LossOn>{"auto", "completion", "assistant", "last",
                                                                "all"};
template <>
inline constexpr std::array<std::string_view, 4> kNames<Packing>{"auto", "best_fit", "none", "wrapped"};
template <>
inline constexpr std::array<std::string_view, 5> kNames<TooLong>{"truncate", "keep_end", "split", "drop",
                                                                 "error"};
template <>
inline constexpr std::array<std::string_view, 2> kNames<BestMetric>{"loss", "accuracy"};
template <>
inline constexpr std::array<std::string_view, 2> kNames<WarmupType>{"log", "linear"};
template <>
inline constexpr std::array<std::string_view, 9> kNames<ScheduleType>{
    "constant",      "linear",         "cosine",   "wsd",        "WarmupLR",
    "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest"};

template <class E>
constexpr std::string_view text_of(E value) {
  return kNames<E>[static_cast<size_t>(value)];
}

}  // namespace zeno::config
