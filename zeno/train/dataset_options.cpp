#include "zeno/train/dataset_options.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "zeno/base/host.h"
#include "zeno/base/log.h"
#include "zeno/base/text_list.h"
#include "zeno/checkpoint/manifest.h"
#include "zeno/comm/joint_error.h"
#include "zeno/config/engine_options.h"
#include "zeno/train/agreement.h"
#include "zeno/train/long_work.h"

namespace zeno::train {
namespace {

data::DatasetSpec spec_of(const config::TrainConfig& config, const std::vector<std::string>& paths,
                          int64_t vocab_size) {
  return {.paths = {paths.begin(), paths.end()},
          .model = config.run.model,
          .cache = config.run.cache,
          .vocab_size = vocab_size,
          .format = config.data.format,
          .loss_on = config.data.loss_on,
          .columns = data::parse_columns(config.data.columns),
          .chat_template = config.data.chat_template,
          .template_extra = config.data.template_extra,
          .chat_date = config.data.chat_date,
          .skip_bad_lines = config.data.skip_bad_lines};
}

// Whether this rank builds what is not in the cache: one rank of those on a host that name the same files.
bool builds(const std::vector<data::DatasetSpec>& specs, comm::World& world) {
  std::vector<std::string> named{host_name(), boot_id()};
  for (const data::DatasetSpec& spec : specs) {
    named.insert(named.end(), {spec.cache.string(), spec.model.string()});
    for (const Path& path : spec.paths) named.push_back(std::filesystem::absolute(path).string());
  }
  const std::string mine = pack_texts(named);
  const std::string key = fmt::format("{:016x}", checkpoint::checksum_of(std::as_bytes(std::span(mine))));
  const std::vector<std::string> keys = world.exchange(key, "names of data files");
  return std::ranges::find(keys, key) - keys.begin() == world.rank();
}

void prepare_together(comm::World& world, const std::vector<data::DatasetSpec>& specs,
                      const data::BuildProgress& progress) {
  std::function<void(std::stop_token)> build;
  if (builds(specs, world)) {
    build = [&](const std::stop_token& stop) {
      for (const data::DatasetSpec& spec : specs) {
        data::prepare_dataset(spec, [&](const data::BuildState& state) {
          require(!stop.stop_requested(), ErrorKind::usage, "[data] building the dataset was cancelled");
          if (progress) progress(state);
        });
      }
    };
  }
  work_long_together(world, "progress of the dataset", build);
}

data::LoaderOptions loader_options(const config::TrainConfig& config, int64_t vocab_size,
                                   const comm::World& world, bool shuffle) {
  const comm::Mesh mesh = config::mesh_of(config, world);
  return {.micro_batch = config.batch.micro_batch,
          .grad_accum = config.batch.grad_accum,
          .rank = mesh.place(world.rank(), comm::kBatchAxes),
          .ranks = mesh.batch_ranks(),
          .slice = mesh.coordinate(world.rank(), comm::Axis::context),
          .slices = mesh.size(comm::Axis::context),
          .seed = uint64_t(config.run.seed),
          .shuffle = shuffle,
          .vocab_size = vocab_size};
}

}  // namespace

data::DatasetSpec training_spec(const config::TrainConfig& config, int64_t vocab_size) {
  data::DatasetSpec spec = spec_of(config, config.run.data, vocab_size);
  spec.max_samples = config.data.max_samples;
  return spec;
}

std::optional<data::DatasetSpec> evaluation_spec(const config::TrainConfig& config, int64_t vocab_size) {
  if (config.eval.data.empty()) return std::nullopt;
  data::DatasetSpec spec = spec_of(config, config.eval.data, vocab_size);
  spec.max_samples = config.eval.max_samples;
  return spec;
}

data::PackOptions training_pack(const config::TrainConfig& config, int64_t seq_len) {
  data::PackOptions pack{.seq_len = seq_len,
                         .packing = config.data.packing,
                         .too_long = config.data.too_long,
                         .seed = uint64_t(config.run.seed),
                         .shuffle = config.data.shuffle};
  if (config.eval.data.empty() && config.eval.split > 0) {
    pack.hold_out = config.eval.split;
    pack.part = data::SamplePart::train;
  }
  return pack;
}

bool is_generated(const config::TrainConfig& config) {
  return config.run.data.size() == 1 && config.run.data[0] == "generated";
}

size_t RunData::host_bytes() const {
  size_t bytes = source_->host_bytes() + train_table_->host_bytes();
  if (evaluation_source_) bytes += evaluation_source_->host_bytes();
  if (evaluation_table_) bytes += evaluation_table_->host_bytes();
  return bytes;
}

void RunData::load(const config::TrainConfig& config, const DatasetSpecs& specs, int64_t seq_len) {
  vocab_size_ = specs.training.vocab_size;
  const auto seed = uint64_t(config.run.seed);
  source_ = std::make_unique<data::TokenSource>(
      is_generated(config) ? data::TokenSource::generated(
                                 {.vocab_size = vocab_size_, .tokens = 1 << 20, .seed = seed, .eos = {}})
                           : data::TokenSource::open(specs.training));
  if (specs.evaluation)
    evaluation_source_ = std::make_unique<data::TokenSource>(data::TokenSource::open(*specs.evaluation));

  data::PackOptions pack = training_pack(config, seq_len);
  const bool split = pack.part == data::SamplePart::train;
  train_table_ = std::make_unique<data::SequenceTable>(*source_, pack);
  log_info("[data] {}", train_report().text());
  if (!split && !specs.evaluation) return;

  pack.part = split ? data::SamplePart::held_out : data::SamplePart::all;
  if (split) pack.max_samples = config.eval.max_samples;
  const data::TokenSource& source = split ? *source_ : *evaluation_source_;
  evaluation_table_ = std::make_unique<data::SequenceTable>(source, pack);
  log_info("[data] evaluation: {}", evaluation_table_->report().text());
}

void RunData::deal(const config::TrainConfig& config, const comm::World& world) {
  const auto loader = [&](const data::TokenSource& source, const data::SequenceTable& table, bool shuffle) {
    return std::make_unique<data::Loader>(source, table, loader_options(config, vocab_size_, world, shuffle));
  };
  train_ = loader(*source_, *train_table_, config.data.shuffle);
  if (!evaluation_table_) return;
  evaluation_ = loader(evaluation_source_ ? *evaluation_source_ : *source_, *evaluation_table_, false);
}

RunData open_run_data(const config::TrainConfig& config, int64_t vocab_size, int64_t seq_len,
                      comm::World& world, const data::BuildProgress& progress) {
  DatasetSpecs specs;
  std::vector<data::DatasetSpec> to_build;
  comm::work_together(world, "what the dataset is", [&] {
    require(!config.run.data.empty(), ErrorKind::usage,
            "[train] no data: give --data FILE, or --data generated");
    specs = {training_spec(config, vocab_size), evaluation_spec(config, vocab_size)};
    if (!is_generated(config)) to_build.push_back(specs.training);
    if (specs.evaluation) to_build.push_back(*specs.evaluation);
  });
  if (!to_build.empty()) prepare_together(world, to_build, progress);
  RunData run;
  comm::work_together(world, "opening of the dataset", [&] { run.load(config, specs, seq_len); });
  agree_on_tokens(*run.source_, "--data", world);
  if (run.evaluation_source_) agree_on_tokens(*run.evaluation_source_, "--eval-data", world);
  return run;
}

}  // namespace zeno::train
