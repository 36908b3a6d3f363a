#include "zeno/checkpoint/deepspeed.h"

#include <algorithm>
#include <set>

#include "zeno/base/error.h"
#include "zeno/checkpoint/deepspeed_layout.h"

namespace zeno::checkpoint {
namespace {

// What all layouts keep beside the module.
void read_run(const DeepSpeedFile& model, const DeepSpeedFiles& files, DeepSpeedRun& run) {
  const PickleNode& root = model.torch.root();
  run.steps = integer_of(root.find("global_steps"), -1);
  require(run.steps >= 0, ErrorKind::data,
          "[deepspeed] {}: has no global_steps, expected what save_checkpoint of DeepSpeed writes",
          model.where());
  run.skipped = integer_of(root.find("skipped_steps"), 0);
  run.samples = integer_of(root.find("global_samples"), 0);
  run.ranks = int(integer_of(root.find("dp_world_size"), 1));
  run.universal = files.universal;
  require(run.skipped >= 0 && run.skipped <= run.steps && run.samples >= 0, ErrorKind::data,
          "[deepspeed] {}: {} steps of which {} were skipped, {} samples; the file is damaged", model.where(),
          run.steps, run.skipped, run.samples);
  const int64_t parts = integer_of(root.find("mp_world_size"), 1);
  require(parts == 1, ErrorKind::data,
          "[deepspeed] {}: is of a run with model parallelism (mp_world_size {}), which is not supported",
          model.where(), parts);
  for (const char* experts : {"ds_autoep_layers", "autoep_layers"}) {
    const PickleNode* layers = root.find(experts);
    require(layers == nullptr || layers->list() == nullptr || layers->list()->items.empty(), ErrorKind::data,
            "[deepspeed] {}: is of a run with experts (MoE), which is not supported", model.where());
  }
  if (const PickleNode* config = root.find("ds_config"))
    run.micro_batch = integer_of(config->find("train_micro_batch_size_per_gpu"), 0);
  if (const PickleNode* version = root.find("ds_version"); version != nullptr && version->text() != nullptr)
    run.version = *version->text();
}

void read_shared(const DeepSpeedFile& model, DeepSpeedContents& contents) {
  const PickleNode* shared = model.torch.root().find("shared_params");
  if (shared == nullptr || shared->dict() == nullptr) return;
  for (const auto& [name, holder] : shared->dict()->items) {
    if (name->text() != nullptr && holder->text() != nullptr)
      contents.shared.emplace(plain_name(*name->text()), plain_name(*holder->text()));
  }
}

}  // namespace

std::string_view name_of(DeepSpeedState state) {
  constexpr std::array<std::string_view, 3> kNames{"master", "first_moment", "second_moment"};
  return kNames[size_t(state)];
}

int64_t DeepSpeedTensor::count() const {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

DeepSpeedCheckpoint DeepSpeedCheckpoint::open(const Path& path) {
  const std::optional<Path> folder = find_deepspeed(path);
  require(folder.has_value(), ErrorKind::data,
          "[deepspeed] {}: there is neither `latest` nor *_model_states.pt, so DeepSpeed did not write it",
          path.string());
  const DeepSpeedFiles files = list_deepspeed(*folder);
  DeepSpeedCheckpoint checkpoint;
  checkpoint.folder_ = *folder;
  DeepSpeedContents& contents = checkpoint.contents_;
  const DeepSpeedFile model(files.model[0], contents);
  read_run(model, files, contents.run);
  read_shared(model, contents);
  if (files.universal) {
    read_universal(model, files, contents);
  } else if (files.sharded_model) {
    read_sharded(model, files, contents);
  } else if (!files.optimizer.empty()) {
    read_flat_groups(model, files, contents);
  } else {
    read_whole(model, contents);
  }
  if (files.sharded_model) {
    add_frozen_shards(model, files, contents);
  } else {
    add_module(model, contents);
  }
  require(!contents.tensors.empty(), ErrorKind::data, "[deepspeed] {}: holds no parameters",
          folder->string());
  return checkpoint;
}

const DeepSpeedTensor* DeepSpeedCheckpoint::find(std::string_view name) const {
  auto found = contents_.index.find(name);
  if (found == contents_.index.end()) {
    const auto alias = contents_.shared.find(name);
    if (alias != contents_.shared.end()) found = contents_.index.find(alias->second);
  }
  return found == contents_.index.end() ? nullptr : &contents_.tensors[found->second];
}

void DeepSpeedCheckpoint::read(const DeepSpeedTensor& tensor, DeepSpeedState state, int64_t begin,
                               std::span<float> out) const {
  require(tensor.has(state), ErrorKind::data, "[deepspeed] {}: holds no {} of {}", folder_.string(),
          name_of(state), tensor.name);
  const int64_t end = begin + int64_t(out.size());
  ensure(begin >= 0 && end <= tensor.count(), "[deepspeed] {}: elements [{}, {}) of {}", tensor.name, begin,
         end, tensor.count());
  int64_t at = 0;  // first element of the span
  for (const DeepSpeedSpan& span : tensor.states[size_t(state)]) {
    const int64_t from = std::max(begin, at), to = std::min(end, at + span.extent.count);
    if (from < to) {
      const File file = File::open(contents_.files[size_t(span.file)]);
      read_floats(file, span.extent, from - at, to - from, out.data() + from - begin);
    }
    at += span.extent.count;
  }
}

void DeepSpeedCheckpoint::verify() const {
  std::set<Path> all(contents_.files.begin(), contents_.files.end());
  const DeepSpeedFiles files = list_deepspeed(folder_);
  all.insert(files.model.begin(), files.model.end());
  for (const Path& path : all) ZipArchive::open(path).verify();
}

}  // namespace zeno::checkpoint
