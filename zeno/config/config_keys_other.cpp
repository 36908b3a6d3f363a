// Rows of everything that Zeno knows but does not need: monitors, profilers, I/O, checkpoint options, other
// kinds of parallelism. Harmless ones are warned about; those that would change results are refused.
#include "zeno/config/config_table.h"

namespace zeno::config {
namespace {

using enum KeyType;
using enum KeyStatus;
constexpr std::string_view kMetrics =
    "metrics always go to metrics.jsonl, metrics.csv and tensorboard/ in out";
constexpr std::string_view kTrace = "use --trace for times and metrics.jsonl for rates";

void add_monitors(TableBuilder& table) {
  for (const char* name : {"tensorboard", "csv_monitor"}) {
    table.block(name, warned, kMetrics);
    table.inside("enabled", boolean, "false");
    table.inside("output_path", text, "\"\"");
    table.inside("job_name", text, "\"DeepSpeedJobName\"");
  }
  table.block("wandb", warned, kMetrics);
  table.inside("enabled", boolean, "false");
  for (const char* name : {"group", "team", "project"}) table.inside(name, text, "null");
  table.block("comet", warned, kMetrics);
  table.inside("enabled", boolean, "false");
  table.inside("samples_log_interval", integer, "100");
  table.inside("online", boolean, "null");
  for (const char* name : {"project", "workspace", "api_key", "experiment_name", "experiment_key", "mode"}) {
    table.inside(name, text, "null");
  }
}

void add_profilers(TableBuilder& table) {
  table.block("flops_profiler", warned, kTrace).strict = false;
  table.inside("enabled", boolean, "false");
  table.inside("recompute_fwd_factor", number, "0");
  table.inside("profile_step", integer, "1");
  table.inside("module_depth", integer, "-1");
  table.inside("top_modules", integer, "1");
  table.inside("detailed", boolean, "true");
  table.inside("output_file", text, "null");
  table.block("comms_logger", warned, kTrace);
  table.inside("enabled", boolean, "false");
  table.inside("prof_all", boolean, "true");
  table.inside("prof_ops", texts, "null");
  table.inside("verbose", boolean, "false");
  table.inside("debug", boolean, "false");
  table.block("timers").strict = false;
  table.block("timers.throughput", no_effect, "metrics.jsonl always has tokens per second");
  table.inside("enabled", boolean, "true");
  table.inside("synchronized", boolean, "true");
  table.top();
  table.warned("wall_clock_breakdown", boolean, "false", kTrace);
  table.warned("memory_breakdown", boolean, "false", "the memory plan is printed before the first step");
  table.warned("dump_state", boolean, "false", "use --print-config");
  table.warned("log_level", text, "null", "there is only one log level");
}

void add_io(TableBuilder& table) {
  table.block("aio", warned, "only NVMe offload reads it, and Zeno chooses its own request sizes").strict =
      false;
  table.inside("block_size", integer, "1048576").range(1);
  table.inside("queue_depth", integer, "8").range(1);
  table.inside("intra_op_parallelism", integer, "1").range(1);
  table.inside("thread_count", integer, "1").range(1);
  table.inside("single_submit", boolean, "false");
  table.inside("overlap_events", boolean, "true");
  table.inside("use_gds", boolean, "false");
  table.block("checkpoint").strict = false;
  table.no_effect("tag_validation", choice, "\"Warn\"", "ranks always agree on a checkpoint")
      .set_choices({"Ignore", "Warn", "Fail"});
  table.no_effect("load_universal", boolean, "false", "every checkpoint loads at any world size");
  table.warned("use_node_local_storage", boolean, "false", "checkpoints go to the out folder");
  table.no_effect("checkpoint_serialization", boolean, "true", "applies to PyTorch files only");
  table.open_block("parallel_write", no_effect, "each rank already writes its own part");
  table.open_block("writer", warned, "Zeno has one checkpoint writer");
  table.top();
  table.open_block("nebula", warned, "Zeno has one checkpoint writer");
  table.open_block("datastates_ckpt", warned, "Zeno has one checkpoint writer");
}

// Along one axis of the mesh.
constexpr double kMostRanks = 1 << 16;

void add_parallelism(TableBuilder& table) {
  table.block("elasticity", refused, "it overrides the batch sizes; set the batch sizes instead").strict =
      false;
  table.inside("enabled", boolean, "false");
  table.inside("max_train_batch_size", integer, "2000").range(1);
  table.inside("micro_batch_sizes", numbers, "[2, 4, 6]");
  for (const char* name : {"min_gpus", "max_gpus", "min_time", "model_parallel_size", "num_gpus_per_node"}) {
    table.inside(name, integer, "null");
  }
  table.inside("version", number, "0.2");
  for (const char* name : {"prefer_larger_batch", "ignore_non_elastic_batch_info"})
    table.inside(name, boolean, "null");
  table.block("tensor_parallel");
  table.refused("autotp_size", integer, "0",
                "tensor parallelism is not supported yet; remove the key to train with ZeRO alone");
  table.no_effect("preset_model", text, "null", "applies to tensor parallelism only");
  table.open_block("partition_config", no_effect, "applies to tensor parallelism only");
  table.no_effect("tp_overlap_comm", boolean, "false", "applies to tensor parallelism only");
  table.block("pipeline").strict = false;
  table
      .key<&TrainConfig::parallel, &ParallelConfig::pipe>(
          "stages", "stages of a pipeline: ranks that each have some of the layers")
      .range(1, kMostRanks)
      .set_flag("--pipe");
  table.no_effect("partition", text, "\"best\"", "layers are cut so that stages take the same time");
  table.no_effect("seed_layers", boolean, "false", "initial weights do not depend on the stages");
  table.no_effect("activation_checkpoint_interval", integer, "0", "see zeno.recompute");
  table.top();
  table
      .key<&TrainConfig::parallel, &ParallelConfig::context>(
          "sequence_parallel_size", "ranks that share each sequence, and exchange heads for tokens (Ulysses)")
      .range(0, kMostRanks)
      .set_flag("--context");
  table.open_block("expert_parallel", refused, "expert parallelism is not supported yet");
  table.no_effect("use_data_before_expert_parallelism", boolean, "false",
                  "applies to expert parallelism only");
}

void add_training_features(TableBuilder& table) {
  table.open_block("hybrid_engine", refused,
                   "generation during training is not supported; remove the key to train without it");
  table.open_block("compile", warned, "the step program is always compiled");
  table.open_block(
      "curriculum_learning", refused,
      "it changes the order of the data and is not supported; remove the key to train in shuffled order");
  table.open_block(
      "data_efficiency", refused,
      "it changes the order of the data and is not supported; remove the key to train in shuffled order");
  table.open_block("progressive_layer_drop", refused,
                   "it changes the results and is not supported; remove the key to train without it");
  table.open_block("compression_training", refused,
                   "it changes the results and is not supported; remove the key to train without it");
  table.open_block("sparse_attention", refused,
                   "it changes the results and is not supported; remove the key to train without it");
  table.open_block("quantize_training", refused,
                   "it changes the results and is not supported; remove the key to train without it");
  table.open_block("autotuning", warned, "use `zeno plan`");
  table.open_block("eigenvalue", warned, "only compression reads it");
  table.warned("graph_harvesting", boolean, "false", "the step program is already static");
  table.no_effect("vocabulary_size", integer, "null", "the model folder defines it");
  table.warned("dataloader_drop_last", boolean, "false", "every step has a full batch");
  table.no_effect("disable_allgather", boolean, "false", "DeepSpeed reads it but does not use it");
  table.warned("low_cpu_mem_usage", boolean, "null",
               "an argument of transformers; each rank reads only its part anyway");
}

}  // namespace

void add_other_keys(TableBuilder& table) {
  add_monitors(table);
  add_profilers(table);
  add_io(table);
  add_parallelism(table);
  add_training_features(table);
}

}  // namespace zeno::config
