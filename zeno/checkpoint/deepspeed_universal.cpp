// Universal folders: zero/<parameter>/{fp32,exp_avg,exp_avg_sq}.pt, each one whole tensor, flat or in shape.
#include <array>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/checkpoint/deepspeed_layout.h"

namespace zeno::checkpoint {
namespace {

constexpr std::array<std::string_view, 3> kNames{"fp32.pt", "exp_avg.pt", "exp_avg_sq.pt"};

// A bare tensor, or one under "param" beside what a merge of parts needs.
DeepSpeedSpan whole_tensor(const DeepSpeedFile& file, int64_t count) {
  const PickleNode& root = file.torch.root();
  const PickleNode* expert = root.find("is_expert_param");
  require(expert == nullptr, ErrorKind::data,
          "[deepspeed] {}: is of a run with experts (MoE), which is not supported", file.where());
  const PickleNode& node = root.tensor() != nullptr ? root : file.at(root, "param");
  require(node.tensor() != nullptr, ErrorKind::data, "[deepspeed] {}: holds no tensor", file.where());
  const DeepSpeedSpan span = file.span(*node.tensor(), "param");
  require(span.extent.count == count, ErrorKind::data, "[deepspeed] {}: has {} elements, expected {}",
          file.where(), span.extent.count, count);
  return span;
}

void add_param(const DeepSpeedFile& model, const Path& folder, const std::string& name,
               const std::vector<int64_t>& shape, DeepSpeedContents& contents) {
  require(folder_exists(folder), ErrorKind::data,
          "[deepspeed] {}: the folder of {} is missing; the copy or conversion is not complete",
          folder.string(), name);
  DeepSpeedTensor& tensor = add_tensor(contents, name, shape, model);
  for (const DeepSpeedState state : kDeepSpeedStates) {
    const Path path = folder / kNames[size_t(state)];
    // A parameter that never got a gradient has weights only.
    if (state != DeepSpeedState::master && !file_exists(path)) continue;
    require(file_exists(path), ErrorKind::data, "[deepspeed] {}: the file is missing", path.string());
    const DeepSpeedFile file(path, contents);
    tensor.states[size_t(state)] = {whole_tensor(file, tensor.count())};
  }
}

}  // namespace

void read_universal(const DeepSpeedFile& model, const DeepSpeedFiles& files, DeepSpeedContents& contents) {
  const Path zero = files.folder / "zero";
  contents.run.stage = files.sharded_model ? 3 : 2;
  const PickleNode& groups = model.at(model.torch.root(), "param_shapes");
  for (int64_t g = 0; groups.at(g) != nullptr; ++g) {
    require(groups.at(g)->dict() != nullptr, ErrorKind::data,
            "[deepspeed] {}: param_shapes is not a list of dicts", model.where());
    for (const auto& [key, value] : groups.at(g)->dict()->items) {
      require(key->text() != nullptr && Path(*key->text()).filename() == *key->text(), ErrorKind::data,
              "[deepspeed] {}: a parameter has no proper name", model.where());
      add_param(model, zero / *key->text(), *key->text(), shape_of(*value, model), contents);
    }
  }
  const Path optimizer = zero / "optimizer_state.pt";
  if (!file_exists(optimizer)) return;
  const DeepSpeedFile file(optimizer, contents);
  contents.run.stage = stage_of(file.torch.root(), contents.run.stage);
  const PickleNode* inner = file.torch.root().find("optimizer_state_dict");
  const PickleNode* states = inner != nullptr ? inner->find("state") : nullptr;
  read_optimizer_numbers(file.torch.root(), states != nullptr ? states->at(0) : nullptr, contents.run, file);
}

}  // namespace zeno::checkpoint
