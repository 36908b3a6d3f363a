// How DeepSpeed lays out states, one reader for each way: they say which bytes of which file are which
// elements of a parameter, and read no values. Internal to deepspeed.cpp and the readers.
#pragma once

#include <string_view>

#include "zeno/checkpoint/deepspeed.h"
#include "zeno/checkpoint/deepspeed_folder.h"

namespace zeno::checkpoint {

// An open file of the checkpoint, known by its place in contents.files.
struct DeepSpeedFile {
  DeepSpeedFile(const Path& path, DeepSpeedContents& contents);

  TorchFile torch;
  int index;

  std::string where() const { return torch.path().string(); }
  DeepSpeedSpan span(const PickleTensor& tensor, std::string_view name) const;
  // Value of a key; Error(data) naming file and key when it is not there.
  const PickleNode& at(const PickleNode& node, std::string_view key) const;
};

// Tensors one after the other, as if they were one.
class DeepSpeedFlat {
 public:
  void add(const DeepSpeedSpan& span);
  int64_t count() const { return count_; }
  // Adds the spans of elements [begin, begin + count), which must be inside, to `out`.
  void cut(int64_t begin, int64_t count, std::vector<DeepSpeedSpan>& out) const;

 private:
  std::vector<DeepSpeedSpan> spans_;
  int64_t count_ = 0;
};
using DeepSpeedFlatStates = std::array<DeepSpeedFlat, 3>;

// Without what wrappers put before it ("module.").
std::string plain_name(std::string_view name);
// A tensor that is not there yet; Error(data) when it is.
DeepSpeedTensor& add_tensor(DeepSpeedContents& contents, std::string_view name, std::vector<int64_t> shape,
                            const DeepSpeedFile& file);

// Sizes as a shape is pickled.
std::vector<int64_t> shape_of(const PickleNode& node, const DeepSpeedFile& file);
int64_t count_of(const std::vector<int64_t>& shape, const DeepSpeedFile& file);
int64_t integer_of(const PickleNode* node, int64_t otherwise);
// ZeroStageEnum(2), as optimizers keep it.
int stage_of(const PickleNode& optimizer, int otherwise);
// One of Adam's two moments among the states of a parameter, or null.
const PickleTensor* moment_of(const PickleNode* state, DeepSpeedState which);

// What the reader of each layout adds: stage 0, with names from the module.
void read_whole(const DeepSpeedFile& model, DeepSpeedContents& contents);
// Stages 1 and 2 (and bf16 without ZeRO in pipelines): flat groups cut into ranks.
void read_flat_groups(const DeepSpeedFile& model, const DeepSpeedFiles& files, DeepSpeedContents& contents);
// Stage 3: every parameter cut into ranks.
void read_sharded(const DeepSpeedFile& model, const DeepSpeedFiles& files, DeepSpeedContents& contents);
void read_universal(const DeepSpeedFile& model, const DeepSpeedFiles& files, DeepSpeedContents& contents);

// Parameters of the module that no reader has added: frozen ones. Stages 0 to 2.
void add_module(const DeepSpeedFile& model, DeepSpeedContents& contents);
// Frozen parameters of stage 3, which are cut into ranks like the others.
void add_frozen_shards(const DeepSpeedFile& model, const DeepSpeedFiles& files, DeepSpeedContents& contents);

// Adam's step count and the loss scale, where an optimizer keeps them.
void read_optimizer_numbers(const PickleNode& optimizer, const PickleNode* adam_state, DeepSpeedRun& run,
                            const DeepSpeedFile& file);

}  // namespace zeno::checkpoint
