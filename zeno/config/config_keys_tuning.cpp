// Rows of Zeno's own block for fine-tuning: data, evaluation, adapters, watching the loss.
#include "zeno/config/config_table.h"

namespace zeno::config {
namespace {

constexpr auto kData = &TrainConfig::data;
constexpr auto kEval = &TrainConfig::eval;
constexpr auto kLora = &TrainConfig::lora;
constexpr auto kWatch = &TrainConfig::watch;

void add_data(TableBuilder& table) {
  table
      .key<kData, &DataConfig::format>("data_format",
                                       "format of the data; auto: detected from the first line")
      .set_flag("--data-format");
  table
      .key<kData, &DataConfig::columns>(
          "columns",
          "which column to read each field from, such as prompt=question,completion=answer; empty: the "
          "column of the same name")
      .set_flag("--columns");
  table
      .key<kData, &DataConfig::chat_template>(
          "chat_template", "a preset or a .jinja file; defaults to the template of the model folder")
      .set_flag("--chat-template")
      .set_takes("NAME|FILE");
  table
      .key<kData, &DataConfig::template_extra>("template_extra",
                                               "JSON object of extra variables for the chat template")
      .set_flag("--template-extra")
      .set_takes("JSON");
  table
      .key<kData, &DataConfig::chat_date>(
          "chat_date", "YYYY-MM-DD for templates that ask for the date; empty: the date in the template")
      .set_flag("--chat-date")
      .set_takes("DATE");
  table
      .key<kData, &DataConfig::loss_on>(
          "loss_on", "which tokens are trained; auto: completions, assistant turns, or whole plain texts")
      .set_flag("--loss-on");
  table
      .key<kData, &DataConfig::packing>(
          "packing", "samples per sequence; none: one, padded; wrapped: a stream cut into windows")
      .set_flag("--packing");
  table.key<kData, &DataConfig::too_long>("too_long", "what to do with samples longer than seq_len")
      .set_flag("--too-long");
  table.key<kData, &DataConfig::skip_bad_lines>("skip_bad_lines", "skip and count lines that cannot be read")
      .set_flag("--skip-bad-lines");
  table.key<kData, &DataConfig::shuffle>("shuffle", "shuffle anew in each epoch, from the seed");
  table.key<kData, &DataConfig::max_samples>("max_samples", "use at most N samples; 0: all")
      .range(0)
      .set_flag("--max-samples");
  table.key<kData, &DataConfig::neftune_alpha>("neftune_alpha", "noise on embeddings (NEFTune); 0: none")
      .range(0)
      .set_flag("--neftune");
}

void add_eval(TableBuilder& table) {
  table.key<kEval, &EvalConfig::data>("eval_data", "evaluation files")
      .set_flag("--eval-data")
      .set_takes("FILE");
  table
      .key<kEval, &EvalConfig::split>(
          "eval_split",
          "hold back this fraction of the training samples for evaluation; 1 or more: that many samples")
      .range(0)
      .set_flag("--eval-split");
  table.key<kEval, &EvalConfig::every>("eval_every", "steps between evaluations; 0: after each epoch")
      .range(0)
      .set_flag("--eval-every");
  table.key<kEval, &EvalConfig::on_start>("eval_on_start", "also evaluate before the first step")
      .set_flag("--eval-on-start");
  table.key<kEval, &EvalConfig::max_samples>("eval_max_samples", "evaluate on at most N samples; 0: all")
      .range(0)
      .set_flag("--eval-max-samples");
  table
      .key<kEval, &EvalConfig::best_metric>("best_metric",
                                            "evaluation metric that decides which model is best")
      .set_flag("--best-metric");
  table.key<kEval, &EvalConfig::keep_best>("keep_best", "keep the best model as the result, not the last")
      .set_flag("--keep-best");
  table
      .key<kEval, &EvalConfig::early_stopping>("early_stopping",
                                               "stop after N evaluations without improvement; 0: never")
      .range(0)
      .set_flag("--early-stopping");
  table
      .key<kEval, &EvalConfig::early_stopping_delta>("early_stopping_delta",
                                                     "smallest change that counts as an improvement")
      .range(0)
      .set_flag("--early-stopping-delta");
}

void add_lora(TableBuilder& table) {
  table.key<kLora, &LoraConfig::rank>("lora_rank", "rank of the LoRA adapters; 0: train all weights")
      .range(0, 65536)
      .set_flag("--lora-rank");
  table
      .key<kLora, &LoraConfig::alpha>("lora_alpha",
                                      "adapters are scaled by alpha / rank; 0: alpha is twice the rank")
      .range(0)
      .set_flag("--lora-alpha");
  table.key<kLora, &LoraConfig::dropout>("lora_dropout", "dropout on the inputs of adapters")
      .range(0, 0.999)
      .set_flag("--lora-dropout");
  table
      .key<kLora, &LoraConfig::targets>(
          "lora_targets", "names or patterns of linear layers; empty or all-linear: all in the blocks")
      .set_flag("--lora-targets")
      .set_takes("NAME");
  table
      .key<kLora, &LoraConfig::modules_to_save>(
          "modules_to_save", "modules trained in full beside the adapters: embed_tokens, lm_head, norm")
      .set_flag("--modules-to-save")
      .set_takes("NAME");
  table.key<kLora, &LoraConfig::rslora>("rslora", "scale by alpha / sqrt(rank)").set_flag("--rslora");
  table.key<kLora, &LoraConfig::dora>("dora", "DoRA adapters: refused, not supported yet").set_flag("--dora");
  table
      .key<kLora, &LoraConfig::quantize_base>(
          "quantize_base", "format of the frozen block weights under adapters; nf4: 4 bits")
      .set_flag("--quantize-base");
  table.key<kLora, &LoraConfig::adapter>("adapter", "adapter folder to start from")
      .set_flag("--adapter")
      .set_takes("DIR");
}

void add_watch(TableBuilder& table) {
  table
      .key<kWatch, &WatchConfig::spike_factor>("spike_factor",
                                               "report a loss of N times the recent mean; 0: never")
      .range(0)
      .set_flag("--spike-factor");
  table
      .key<kWatch, &WatchConfig::max_bad_steps>(
          "max_bad_steps", "stop after N steps in a row with NaN or a loss spike; 0: never")
      .range(0)
      .set_flag("--max-bad-steps");
}

}  // namespace

void add_tuning_keys(TableBuilder& table) {
  add_data(table);
  add_eval(table);
  add_lora(table);
  add_watch(table);
}

}  // namespace zeno::config
