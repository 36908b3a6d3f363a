// Rows of recomputation and of Zeno's own block, where the flags of `zeno train` live too.
#include "zeno/config/config_table.h"

namespace zeno::config {
namespace {

using enum KeyType;
// Longer than any model's; tables by position have to fit the host before a plan can say that they do not.
constexpr int64_t kMaxSeqLen = int64_t(1) << 27;

constexpr auto kRun = &TrainConfig::run;
constexpr auto kRecompute = &TrainConfig::recompute;

void add_activation_checkpointing(TableBuilder& table) {
  table.block("activation_checkpointing").strict = false;
  table
      .key<kRecompute, &RecomputeConfig::number_checkpoints>(
          "number_checkpoints", "keep this many block inputs: zeno.recompute full, every = blocks / number")
      .range(0);
  table.no_effect("partition_activations", boolean, "false",
                  "shards over model-parallel ranks, which Zeno does not have");
  table
      .key<kRecompute, &RecomputeConfig::offload>(
          "cpu_checkpointing", "GPUs: keep block inputs of recompute full in host memory until backward")
      .set_flag("--offload-activations");
  table.no_effect("contiguous_memory_optimization", boolean, "false", "activations are already in an arena");
  table.no_effect("synchronize_checkpoint_boundary", boolean, "false", "a debugging aid for PyTorch");
  table.warned("profile", boolean, "false", "use --trace");
  ConfigKey& enabled = table.key<kRecompute, &RecomputeConfig::enabled>(
      "enabled", "not a DeepSpeed key; read as zeno.recompute full");
  enabled.status = KeyStatus::warned;
}

void add_numerics(TableBuilder& table) {
  table
      .key<&TrainConfig::precision, &PrecisionConfig::compute>(
          "dtype",
          "compute dtype; defaults to bf16 on GPUs and fp32 on CPUs, with --config to the dtype set by fp16 "
          "and bf16")

      .set_flag("--dtype");
  table
      .key<&TrainConfig::precision, &PrecisionConfig::matmul>(
          "matmul_dtype",
          "dtype of matmuls in blocks; auto: the compute dtype; fp8: on GPUs, with dtype bf16")
      .set_flag("--matmul-dtype");
  table
      .key<&TrainConfig::precision, &PrecisionConfig::states>(
          "state_dtype", "dtype of masters and moments; bf16: stochastic rounding, a third of the bytes")
      .set_flag("--state-dtype");
  table
      .key<&TrainConfig::precision, &PrecisionConfig::moments>(
          "moment_dtype",
          "dtype of moments only; 8bit: 8.5 bits per value, in blocks, with stochastic rounding")
      .set_flag("--moment-dtype");
  table
      .key<kRecompute, &RecomputeConfig::mode>(
          "recompute", "activations to recompute in backward; auto: only as many as memory requires")
      .set_flag("--recompute");
  table.key<kRecompute, &RecomputeConfig::every>("recompute_every", "keep the input of every k-th block")
      .range(1)
      .set_flag("--recompute-every");
  table
      .key<kRun, &RunConfig::order>("order",
                                    "horizontal: micro-batch by micro-batch; vertical: layer by layer")
      .set_flag("--order");
  table
      .key<kRun, &RunConfig::reduction>(
          "reduction",
          "who sums gradients over ranks; tree: Zeno, with the same bits everywhere; native: NCCL, or MPI "
          "between hosts, for networks that sum in their switches (SHARP), without the promise of same bits")
      .set_flag("--reduction");
  table
      .key<kRun, &RunConfig::deterministic>(
          "deterministic",
          "GPUs: the same bits in every run, at some cost in speed; CPUs are always deterministic")
      .set_flag("--deterministic");
  table.key<kRun, &RunConfig::reproducible>("reproducible", "the same bits at 1, 2, 4 and 8 ranks")
      .set_flag("--reproducible");
  table.key<kRun, &RunConfig::seed>("seed", "seed for initial weights, shuffling and rounding")
      .range(0)
      .set_flag("--seed");
}

void add_run(TableBuilder& table) {
  table.key<kRun, &RunConfig::model>("model", "model folder").set_flag("--model").set_takes("DIR");
  table.key<kRun, &RunConfig::data>("data", "training files").set_flag("--data").set_takes("FILE");
  table.key<kRun, &RunConfig::out>("out", "output folder").set_flag("--out").set_takes("DIR");
  table.key<kRun, &RunConfig::seq_len>("seq_len", "tokens per sequence; 0: the model's limit, at most 1024")
      .range(0, kMaxSeqLen)
      .set_flag("--seq-len");
  table.key<kRun, &RunConfig::steps>("steps", "optimizer steps; 0: use epochs")
      .range(0, 1e15)
      .set_flag("--steps");
  table.key<kRun, &RunConfig::epochs>("epochs", "passes over the data, unless steps is given")
      .range(1e-9, 1e9)
      .set_flag("--epochs");
  table.key<kRun, &RunConfig::ranks>("ranks", "ranks as threads of one process; 0: as launched")
      .range(0, 65536)
      .set_flag("--ranks");
  table.key<kRun, &RunConfig::device>("device", "device to train on; auto: a GPU if there is one")
      .set_flag("--device");
  table
      .key<kRun, &RunConfig::limit_gpu_clock>(
          "limit_gpu_clock",
          "GPUs, as root: hold the clock where the power cap settles it, until the run ends")
      .set_flag("--limit-gpu-clock");
  table
      .key<kRun, &RunConfig::save_every>(
          "save_every", "steps between checkpoints, written while training continues; 0: none")
      .range(0)
      .set_flag("--save-every");
  table.key<kRun, &RunConfig::keep_last>("keep_last", "keep the newest N checkpoints; 0: all")
      .range(0)
      .set_flag("--keep-last");
  table
      .key<kRun, &RunConfig::keep_every>("keep_every",
                                         "also keep checkpoints whose step is a multiple of N; 0: none")
      .range(0)
      .set_flag("--keep-every");
  table
      .key<kRun, &RunConfig::save_deadline_s>(
          "save_deadline_s",
          "seconds for the step and saving after Ctrl-C, SIGTERM or SIGHUP, then exit code 7; 0: no limit")
      .range(0, 1e9)
      .set_flag("--save-deadline");
  table
      .key<kRun, &RunConfig::resume>("resume",
                                     "auto: resume from the newest checkpoint; or a checkpoint folder")
      .set_flag("--resume")
      .set_takes("auto|DIR");
  table
      .key<kRun, &RunConfig::max_restarts>(
          "max_restarts", "if the run dies, restart it up to N times from its newest checkpoint")
      .range(0, 1e6)
      .set_flag("--max-restarts");
  table
      .key<kRun, &RunConfig::launcher>("launcher",
                                       "command that starts the ranks as processes: \"mpirun -n 4\"")
      .set_flag("--launcher")
      .set_takes("COMMAND");
  table
      .key<kRun, &RunConfig::peer_snapshot>(
          "peer_snapshot",
          "steps between copies of the state in the memory of this and another host; 0: none")
      .range(0)
      .set_flag("--peer-snapshot", "1");
  table.key<kRun, &RunConfig::peer_snapshot_dir>("peer_snapshot_dir", "memory file system for these copies")
      .set_flag("--peer-snapshot-dir")
      .set_takes("DIR");
  table
      .key<kRun, &RunConfig::cache>(
          "cache",
          "folder for data computed once (tokenised data, matmul plans, machine rates); empty: ~/.cache/zeno")
      .set_flag("--cache")
      .set_takes("DIR");
  table.key<kRun, &RunConfig::log>("log", "metrics file; empty: metrics.jsonl in out")
      .set_flag("--log")
      .set_takes("FILE");
  table.key<kRun, &RunConfig::trace>("trace", "Perfetto trace of a step")
      .set_flag("--trace")
      .set_takes("FILE");
  table
      .key<kRun, &RunConfig::done_file>(
          "done_file", "file created after everything is saved, for launchers that lose exit codes")
      .set_flag("--done-file")
      .set_takes("FILE");
  table.key<kRun, &RunConfig::deadline_s>("deadline_s", "longest wait for another rank, in seconds")
      .range(0.001, 1e9)
      .set_flag("--deadline");
  table
      .key<kRun, &RunConfig::disk_deadline_s>("disk_deadline_s",
                                              "longest wait for a disk to respond, in seconds")
      .range(0.001, 1e9)
      .set_flag("--disk-deadline");
  table
      .key<kRun, &RunConfig::choose>("auto",
                                     "let the planner choose stage, offload, recompute, batch and order "
                                     "unless they are given; on without --config")
      .set_flag("--auto")
      .set_flag_off("--no-auto");
  table
      .key<kRun, &RunConfig::device_mem>(
          "device_mem", "device memory a rank may use, such as 80GB or 79GiB; empty: all free memory")
      .set_flag("--device-mem")
      .set_takes("SIZE");
  table
      .key<kRun, &RunConfig::host_mem>(
          "host_mem",
          "host memory that all ranks of a host may use together, such as 512GB; empty: all free memory")
      .set_flag("--host-mem")
      .set_takes("SIZE");
}

}  // namespace

void add_zeno_keys(TableBuilder& table) {
  add_activation_checkpointing(table);
  table.block("zeno");
  add_numerics(table);
  add_run(table);
  add_tuning_keys(table);
  table.top();
  table
      .key<kRun, &RunConfig::steps_per_print>("steps_per_print",
                                              "steps between progress lines; 0: about every 5 %")
      .range(0);
  table.renamed("reproducible", boolean, {"zeno.reproducible"}, "the same as zeno.reproducible");
  table.renamed("order", choice, {"zeno.order"}, "the same as zeno.order")
      .set_choices({"horizontal", "vertical"});
  table.renamed("seed", integer, {"zeno.seed"}, "the same as zeno.seed").range(0);
}

}  // namespace zeno::config
