#include "zeno/checkpoint/deepspeed_layout.h"

#include <algorithm>

#include "zeno/base/error.h"
#include "zeno/base/utf8.h"

namespace zeno::checkpoint {

DeepSpeedFile::DeepSpeedFile(const Path& path, DeepSpeedContents& contents)
    : torch(TorchFile::open(path)), index(int(contents.files.size())) {
  contents.files.push_back(path);
}

DeepSpeedSpan DeepSpeedFile::span(const PickleTensor& tensor, std::string_view name) const {
  return {index, torch.locate(tensor, name)};
}

const PickleNode& DeepSpeedFile::at(const PickleNode& node, std::string_view key) const {
  const PickleNode* found = node.find(key);
  require(found != nullptr, ErrorKind::data,
          "[deepspeed] {}: has no {}, expected what save_checkpoint of DeepSpeed writes", where(), key);
  return *found;
}

void DeepSpeedFlat::add(const DeepSpeedSpan& span) {
  if (span.extent.count == 0) return;
  spans_.push_back(span);
  count_ += span.extent.count;
}

void DeepSpeedFlat::cut(int64_t begin, int64_t count, std::vector<DeepSpeedSpan>& out) const {
  ensure(begin >= 0 && count >= 0 && begin + count <= count_, "[deepspeed] elements [{}, +{}) of {}", begin,
         count, count_);
  int64_t at = 0;
  for (const DeepSpeedSpan& span : spans_) {
    const int64_t from = std::max(begin, at), to = std::min(begin + count, at + span.extent.count);
    if (from < to) {
      const uint64_t skipped = uint64_t(from - at) * size_of(span.extent.dtype);
      out.push_back({span.file, {span.extent.begin + skipped, span.extent.dtype, to - from}});
    }
    at += span.extent.count;
  }
}

std::string plain_name(std::string_view name) {
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view prefix : {"module.", "_orig_mod."}) {
      if (!name.starts_with(prefix)) continue;
      name.remove_prefix(prefix.size());
      found = true;
    }
  }
  return std::string(name);
}

DeepSpeedTensor& add_tensor(DeepSpeedContents& contents, std::string_view name, std::vector<int64_t> shape,
                            const DeepSpeedFile& file) {
  const std::string plain = plain_name(name);
  const bool fresh = contents.index.emplace(plain, contents.tensors.size()).second;
  require(fresh, ErrorKind::data, "[deepspeed] {}: {} is there twice", file.where(), shortened(plain, 120));
  return contents.tensors.emplace_back(DeepSpeedTensor{plain, std::move(shape), {}});
}

std::vector<int64_t> shape_of(const PickleNode& node, const DeepSpeedFile& file) {
  std::vector<int64_t> shape;
  const PickleList* sizes = node.list();
  require(sizes != nullptr, ErrorKind::data, "[deepspeed] {}: a shape is not a list of sizes", file.where());
  for (const PickleNode* size : sizes->items) shape.push_back(integer_of(size, -1));
  count_of(shape, file);
  return shape;
}

int64_t count_of(const std::vector<int64_t>& shape, const DeepSpeedFile& file) {
  constexpr int64_t kMost = int64_t(1) << 40;
  int64_t count = 1;
  for (int64_t size : shape) {
    require(size >= 0 && (size == 0 || count <= kMost / size), ErrorKind::data,
            "[deepspeed] {}: a shape has size {}, which is not a valid parameter size", file.where(), size);
    count *= size;
  }
  return count;
}

int64_t integer_of(const PickleNode* node, int64_t otherwise) {
  return node != nullptr && node->integer() != nullptr ? *node->integer() : otherwise;
}

int stage_of(const PickleNode& optimizer, int otherwise) {
  const PickleNode* stage = optimizer.find("zero_stage");
  if (stage == nullptr || stage->object() == nullptr || stage->object()->state == nullptr) return otherwise;
  return int(integer_of(stage->object()->state->at(0), otherwise));
}

const PickleTensor* moment_of(const PickleNode* state, DeepSpeedState which) {
  const PickleNode* moment =
      state == nullptr ? nullptr
                       : state->find(which == DeepSpeedState::first_moment ? "exp_avg" : "exp_avg_sq");
  return moment == nullptr ? nullptr : moment->tensor();
}

void add_module(const DeepSpeedFile& model, DeepSpeedContents& contents) {
  const PickleNode& module = model.at(model.torch.root(), "module");
  require(
      module.dict() != nullptr, ErrorKind::data,
      "[deepspeed] {}: has no module weights; pipelines keep them in separate files, which is not supported",
      model.where());
  std::map<std::string, bool, std::less<>> buffers;
  if (const PickleNode* names = model.torch.root().find("buffer_names"); names != nullptr && names->list()) {
    for (const PickleNode* name : names->list()->items) {
      if (name->text() != nullptr) buffers[*name->text()] = true;
    }
  }
  // Parameters that are one tensor under two names share their storage.
  std::map<std::pair<std::string, int64_t>, std::string> holders;
  for (const auto& [key, value] : module.dict()->items) {
    const PickleTensor* tensor = value->tensor();
    if (key->text() == nullptr || tensor == nullptr || !is_float(tensor->dtype)) continue;
    if (buffers.contains(*key->text()) || count_of(tensor->shape, model) == 0) continue;
    const std::string name = plain_name(*key->text());
    const auto [holder, first] = holders.try_emplace({tensor->storage, tensor->offset}, name);
    if (!first) contents.shared.emplace(name, holder->second);
    if (contents.index.contains(name) || contents.shared.contains(name)) continue;
    add_tensor(contents, name, tensor->shape, model).states[0].push_back(model.span(*tensor, name));
  }
}

namespace {

double number_of(const PickleNode* node, double otherwise) {
  if (node == nullptr) return otherwise;
  if (const auto* value = std::get_if<double>(&node->value)) return *value;
  return double(integer_of(node, int64_t(otherwise)));
}

// A plain integer, or a tensor of one element.
int64_t step_of(const PickleNode* step, const DeepSpeedFile& file) {
  if (step == nullptr || step->tensor() == nullptr) return integer_of(step, 0);
  const DeepSpeedSpan span = file.span(*step->tensor(), "step");
  if (span.extent.count != 1) return 0;
  float value = 0;
  read_floats(file.torch.archive().file(), span.extent, 0, 1, &value);
  return value >= 0 && value < 9e15f ? int64_t(value) : 0;
}

}  // namespace

void read_optimizer_numbers(const PickleNode& optimizer, const PickleNode* adam_state, DeepSpeedRun& run,
                            const DeepSpeedFile& file) {
  if (adam_state != nullptr) run.adam_steps = step_of(adam_state->find("step"), file);
  if (run.adam_steps == 0) run.adam_steps = integer_of(optimizer.find("base_optimizer_state_step"), 0);
  const PickleNode* dynamic = optimizer.find("dynamic_loss_scale");
  if (dynamic == nullptr || !std::holds_alternative<bool>(dynamic->value) || !std::get<bool>(dynamic->value))
    return;
  // With ZeRO the scaler is an object; without, its fields stand beside the rest.
  const PickleNode* scaler = optimizer.find("loss_scaler");
  const PickleNode& fields = scaler != nullptr ? *scaler : optimizer;
  run.loss_scale = {.scale = number_of(fields.find("cur_scale"), 1),
                    .iteration = integer_of(fields.find("cur_iter"), 0),
                    .last_overflow = integer_of(fields.find("last_overflow_iter"), -1),
                    .hysteresis_left = integer_of(fields.find("cur_hysteresis"), 1)};
}

}  // namespace zeno::checkpoint
