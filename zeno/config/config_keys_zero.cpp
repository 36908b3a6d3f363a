// Rows of "zero_optimization" and its inner blocks.
#include "zeno/config/config_table.h"

namespace zeno::config {
namespace {

using enum KeyType;
constexpr auto kZero = &TrainConfig::zero;
constexpr auto kOffloadOptimizer = &ZeroConfig::offload_optimizer;
constexpr auto kParam = &ZeroConfig::offload_param;

void add_communication(TableBuilder& table) {
  table.key<kZero, &ZeroConfig::contiguous_gradients>(
      "contiguous_gradients", "copy gradients into the flat bucket as they are produced");
  table.key<kZero, &ZeroConfig::reduce_scatter>("reduce_scatter", "reduce-scatter gradients to their owners");
  table.key<kZero, &ZeroConfig::reduce_bucket_size>("reduce_bucket_size", "elements per gradient bucket")
      .range(0);
  table
      .key<kZero, &ZeroConfig::allgather_bucket_size>("allgather_bucket_size",
                                                      "elements per all-gather of weights; even")
      .range(0);
  table
      .key<kZero, &ZeroConfig::overlap_comm>(
          "overlap_comm", "communicate while computing; defaults to true at stage 3, else to false")
      .set_flag("--overlap-comm");
  table.key<kZero, &ZeroConfig::round_robin_gradients>("round_robin_gradients",
                                                       "spread consecutive gradients over the ranks");
  table.key<kZero, &ZeroConfig::ignore_unused_parameters>(
      "ignore_unused_parameters", "false: a trainable parameter without a gradient is an error");
  table.no_effect("use_multi_rank_bucket_allreduce", boolean, "true",
                  "Zeno always uses a true reduce-scatter");
  table.no_effect("allgather_partitions", boolean, "true", "DeepSpeed does not read it either");
  table.no_effect("load_from_fp32_weights", boolean, "true",
                  "a checkpoint holds fp32 masters and they are used");
  table.no_effect("elastic_checkpoint", boolean, "false", "every checkpoint loads at any world size");
  table.refused("legacy_stage1", boolean, "false",
                "DeepSpeed has dropped the old stage 1 too; remove the key");
}

void add_stage3(TableBuilder& table) {
  table.key<kZero, &ZeroConfig::sub_group_size>("sub_group_size", "elements per optimizer tile").range(0);
  table
      .key<kZero, &ZeroConfig::prefetch_bucket_size>("stage3_prefetch_bucket_size",
                                                     "elements gathered ahead; 0: no prefetch")
      .range(0)
      .set_rounds_down();
  table
      .key<kZero, &ZeroConfig::param_persistence_threshold>(
          "stage3_param_persistence_threshold", "parameters with at most this many elements stay gathered")
      .range(0);
  table
      .key<kZero, &ZeroConfig::model_persistence_threshold>(
          "stage3_model_persistence_threshold", "maximum number of elements that stay gathered, in total")
      .range(0);
  table
      .key<kZero, &ZeroConfig::max_live_parameters>("stage3_max_live_parameters",
                                                    "limit on prefetch, in elements")
      .range(0);
  table
      .key<kZero, &ZeroConfig::max_reuse_distance>(
          "stage3_max_reuse_distance", "keep a unit gathered if it is used again within this many elements")
      .range(0);
  table.no_effect("stage3_gather_16bit_weights_on_model_save", boolean, "false",
                  "Zeno always saves whole weights, without gathering them on one rank");
  table.no_effect("stage3_module_granularity_threshold", integer, "0", "units are already whole blocks");
  table.no_effect("stage3_use_all_reduce_for_fetch_params", boolean, "false",
                  "gathers already write into their final place");
  table.no_effect("stage3_allgather_sequential", boolean, "false", "gathers need no coalescing buffer");
  table.no_effect("memory_efficient_linear", boolean, "true",
                  "gathered weights are never saved for backward");
  table.no_effect("pipeline_loading_checkpoint", boolean, "false",
                  "each rank reads only its part of a checkpoint");
  table.no_effect("override_module_apply", boolean, "true", "applies to PyTorch modules only");
  table.no_effect("log_trace_cache_warnings", boolean, "false",
                  "the step program is compiled; there is no trace to lose");
  table.no_effect("enable_sanity_checks", boolean, "false",
                  "ranks always compare their collectives at start");
  table.no_effect("save_muon_momentum_buffer_in_memory", boolean, "false",
                  "applies to the Muon optimizer only");
  for (const char* name :
       {"prefetch_bucket_size", "param_persistence_threshold", "model_persistence_threshold",
        "max_live_parameters", "max_reuse_distance", "module_granularity_threshold"}) {
    table
        .renamed(name, integer, {std::string("zero_optimization.stage3_") + name}, "the same without stage3_")
        .set_rounds_down();
  }
  for (const char* name :
       {"gather_16bit_weights_on_model_save", "use_all_reduce_for_fetch_params", "allgather_sequential"}) {
    table.renamed(name, boolean, {std::string("zero_optimization.stage3_") + name},
                  "the same without stage3_");
  }
  table.renamed("stage3_gather_fp16_weights_on_model_save", boolean,
                {"zero_optimization.stage3_gather_16bit_weights_on_model_save"}, "deprecated");
}

void add_groups(TableBuilder& table) {
  table
      .key<kZero, &ZeroConfig::shard_group>("mics_shard_size",
                                            "ranks that share one copy of what the stage shards, such as "
                                            "those of one host; 1 or less: all ranks")
      .range(-1)
      .set_flag("--shard-group");
  table
      .key<kZero, &ZeroConfig::param_group>("zero_hpz_partition_size",
                                            "stage 3: ranks that share one copy of the parameters; gradients "
                                            "and optimizer states stay sharded over all ranks")
      .range(0)
      .set_flag("--param-group");
  table.no_effect("mics_hierarchical_params_gather", boolean, "false",
                  "parameters are always gathered between hosts first, then within each host");
}

void add_quantized(TableBuilder& table) {
  table
      .key<kZero, &ZeroConfig::quantized_weights>(
          "zero_quantized_weights", "stage 3: gather parameters in blocks of eight bits; masters stay exact")
      .set_flag("--quantized-weights");
  table.refused("zero_quantized_nontrainable_weights", boolean, "false",
                "frozen weights are kept in four bits by lora.quantize_base nf4; remove the key");
  table
      .key<kZero, &ZeroConfig::quantized_gradients>("zero_quantized_gradients",
                                                    "stages 1 to 3: reduce gradients in blocks of eight bits "
                                                    "within groups (all ranks without groups) and "
                                                    "of four bits across them")
      .set_flag("--quantized-gradients");
}

void add_deprecated_offload(TableBuilder& table) {
  const auto add = [&](const char* old_name, const char* target) {
    ConfigKey& row =
        table.renamed(old_name, boolean, {std::string("zero_optimization.") + target + ".device"},
                      "deprecated: true means device cpu");
    row.rename_true = "cpu";
    row.rename_false = "none";
  };
  add("cpu_offload", "offload_optimizer");
  add("cpu_offload_param", "offload_param");
  table.renamed(
      "cpu_offload_use_pin_memory", boolean,
      {"zero_optimization.offload_optimizer.pin_memory", "zero_optimization.offload_param.pin_memory"},
      "deprecated");
}

void add_offload_optimizer(TableBuilder& table) {
  table.block("zero_optimization.offload_optimizer");
  table
      .key<kZero, kOffloadOptimizer, &OffloadOptimizerConfig::device>(
          "device",
          "where optimizer states live; auto: as close to the device as they fit, on disk only with "
          "nvme_path")
      .set_flag("--offload-optimizer");
  table
      .key<kZero, kOffloadOptimizer, &OffloadOptimizerConfig::nvme_path>(
          "nvme_path", "folder on a fast disk; states are striped over several folders separated by commas")
      .set_flag("--nvme-path")
      .set_takes("DIR");
  table
      .key<kZero, kOffloadOptimizer, &OffloadOptimizerConfig::buffer_count>(
          "buffer_count", "nvme: chunks in host memory at the same time")
      .range(0);
  table.no_effect("pin_memory", boolean, "false", "host memory of GPUs is always pinned");
  table.no_effect("pipeline_read", boolean, "false", "reads always run ahead of the update");
  table.no_effect("pipeline_write", boolean, "false", "writes always run behind the update");
  table
      .key<kZero, kOffloadOptimizer, &OffloadOptimizerConfig::ratio>(
          "ratio", "fraction of the states that leaves the device")
      .range(0, 1);
  table
      .key<kZero, kOffloadOptimizer, &OffloadOptimizerConfig::cpu_share>(
          "cpu_share",
          "fraction of the states in a GPU's host memory that the CPU updates; -1: from measured rates")
      .range(-1, 1)
      .set_flag("--cpu-share");
  table.no_effect("fast_init", boolean, "false", "states are created in their tier");
  table.no_effect("super_offload", boolean, "false", "reads run ahead of the norm; nothing is speculated");
  table.no_effect("cpuadam_cores_perc", number, "0.8", "applies to super_offload only").range(0, 1);
  table.warned("buffer_size", integer, "null", "no longer a DeepSpeed key; the plan sizes the buffers")
      .range(0);
}

void add_offload_param(TableBuilder& table) {
  table.block("zero_optimization.offload_param");
  table
      .key<kZero, kParam, &OffloadParamConfig::device>(
          "device", "where parameters live between uses; requires stage 3 or one rank; auto: none")
      .set_flag("--offload-param");
  table.key<kZero, kParam, &OffloadParamConfig::nvme_path>("nvme_path", "folder for device nvme");
  table.no_effect("buffer_count", integer, "5", "stage3_prefetch_bucket_size sets how far to read ahead")
      .range(0);
  table.no_effect("buffer_size", integer, "1e8", "buffers hold whole blocks; the plan sizes them").range(0);
  table
      .key<kZero, kParam, &OffloadParamConfig::max_in_cpu>("max_in_cpu",
                                                           "elements kept in host memory with nvme")
      .range(0);
  table.no_effect("pin_memory", boolean, "false", "host memory of GPUs is always pinned");
}

void add_inner_blocks(TableBuilder& table) {
  add_offload_optimizer(table);
  add_offload_param(table);
  table.block("zero_optimization.zenflow", KeyStatus::refused,
              "ZenFlow updates with stale gradients, which is not Adam; remove it");
  table.inside("topk_ratio", number, "0.1").range(0, 1);
  table.inside("select_strategy", choice, "\"auto\"").set_choices({"auto", "step", "epoch"});
  table.inside("select_interval", integer, "null").range(1);
  table.inside("update_interval", integer, "null").range(1);
  table.inside("overlap_step", boolean, "false");
  table.inside("offload", boolean, "false");
  table.inside("auto_ratio", number, "0.99").range(0, 1);
  table.inside("full_warm_up_rounds", integer, "0").range(0);
  table.inside("pt_reserved_cores_perc", number, "0.5").range(0, 1);
  table.inside("steps_per_epoch", integer, "null").range(1);
  table.block("zero_optimization.leaf_module", KeyStatus::no_effect, "units are already whole blocks");
  for (const char* name : {"classes", "names", "name_suffixes"}) table.inside(name, texts, "null");
  table.block("zero_optimization.zeropp_loco_param", KeyStatus::refused,
              "error feedback of quantized gradients (LoCo) is not supported; remove it");
  table.inside("err_beta", number, "0.8").range(0, 1);
  table.inside("reset_T", integer, "1024").range(1);
}

}  // namespace

void add_zero_keys(TableBuilder& table) {
  table.block("zero_optimization");
  table
      .key<kZero, &ZeroConfig::stage>(
          "stage", "0: off; 1: shard optimizer states; 2: gradients too; 3: parameters too")
      .range(0, 3)
      .set_flag("--stage");
  add_communication(table);
  add_stage3(table);
  add_groups(table);
  add_quantized(table);
  add_deprecated_offload(table);
  add_inner_blocks(table);
  table.top();
  table.renamed("allgather_size", integer, {"zero_optimization.allgather_bucket_size"},
                "deprecated, from the time of zero_optimization: true");
}

}  // namespace zeno::config
