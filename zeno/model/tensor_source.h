// Tensors by their Hugging Face names, to be read by range, whatever the files: a model folder, or one state
// of a DeepSpeed checkpoint. const calls may come from several threads at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zeno::model {

struct SourceTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::string type;  // as the file calls it
  bool floating = true;
  std::string file;  // where it is, for messages

  int64_t count() const {
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    return count;
  }
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  virtual std::string where() const = 0;
  virtual std::vector<std::string> names() const = 0;
  // Nothing when there is none of that name. A tensor may be known by a second name, which is not its `name`.
  virtual std::optional<SourceTensor> find(std::string_view name) const = 0;
  // Elements [begin, begin + count) of a tensor that find() gave, as floats.
  virtual void read(const SourceTensor& tensor, int64_t begin, int64_t count, float* out) const = 0;
};

}  // namespace zeno::model
