// A checkpoint that DeepSpeed wrote: ZeRO stages 0 to 3 as they are (one file per rank, everything flat and
// padded), or universal folders. It gives any range of any state of a parameter by its Hugging Face name,
// reading only those bytes; nothing of the files is executed (pickle.h). docs/deepspeed_checkpoints.md.
//
// Opens files as it reads and keeps none open. read() blocks; several threads may call it at once.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/checkpoint/torch_file.h"

namespace zeno::checkpoint {

enum class DeepSpeedState { master, first_moment, second_moment };
inline constexpr std::array kDeepSpeedStates{DeepSpeedState::master, DeepSpeedState::first_moment,
                                             DeepSpeedState::second_moment};
std::string_view name_of(DeepSpeedState state);

// Values that are contiguous in a file.
struct DeepSpeedSpan {
  int file = 0;  // index into the checkpoint's files
  TorchExtent extent;
};

struct DeepSpeedTensor {
  std::string name;  // Hugging Face's
  std::vector<int64_t> shape;
  // Spans that together, in order, hold the tensor's values; none: there is no such state, for example for
  // frozen parameters.
  std::array<std::vector<DeepSpeedSpan>, 3> states;

  int64_t count() const;
  bool has(DeepSpeedState state) const { return !states[size_t(state)].empty(); }
};

// Where the run stood.
struct DeepSpeedRun {
  int stage = 0, ranks = 1;
  bool universal = false;
  int64_t steps = 0, skipped = 0;  // optimizer steps, skipped ones included
  int64_t samples = 0;             // seen: steps times the global batch
  int64_t micro_batch = 0;         // 0: unknown
  int64_t adam_steps = 0;          // as the optimizer counts them; 0: unknown
  std::string version;             // of DeepSpeed
  struct LossScale {
    double scale = 1;
    int64_t iteration = 0, last_overflow = -1, hysteresis_left = 1;
  };
  std::optional<LossScale> loss_scale;  // dynamic, of fp16
  // Why there are no moments although the run had an optimizer; empty otherwise.
  std::string without_moments;
};

// What the readers of the layouts fill in.
struct DeepSpeedContents {
  std::vector<Path> files;
  std::vector<DeepSpeedTensor> tensors;                    // in the order of the checkpoint
  std::map<std::string, size_t, std::less<>> index;        // of a tensor, by name
  std::map<std::string, std::string, std::less<>> shared;  // a name, and the tensor that holds its values
  DeepSpeedRun run;
};

class DeepSpeedCheckpoint {
 public:
  // `path` as find_deepspeed takes it. Error(data) for what is cut short, missing or not supported, naming
  // the file.
  static DeepSpeedCheckpoint open(const Path& path);

  const Path& folder() const { return folder_; }
  const std::vector<Path>& files() const { return contents_.files; }
  const DeepSpeedRun& run() const { return contents_.run; }
  const std::vector<DeepSpeedTensor>& tensors() const { return contents_.tensors; }
  // Under its own name or one that shares it; null when there is none.
  const DeepSpeedTensor* find(std::string_view name) const;
  // Names that share a tensor of another name.
  const std::map<std::string, std::string, std::less<>>& shared() const { return contents_.shared; }

  // Elements [begin, begin + out.size()).
  void read(const DeepSpeedTensor& tensor, DeepSpeedState state, int64_t begin, std::span<float> out) const;
  // Reads all files. Error(data) naming the first damage.
  void verify() const;

 private:
  Path folder_;
  DeepSpeedContents contents_;
};

}  // namespace zeno::checkpoint
