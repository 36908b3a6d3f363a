// Any bytes as the index of a model in shards, beside one shard: the folder opens, or an Error says why not.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "zeno/base/error.h"
#include "zeno/base/file.h"
#include "zeno/checkpoint/safetensors_folder.h"
#include "zeno/checkpoint/safetensors_writer.h"

namespace {

using namespace zeno;

// With the shard "x", which holds the tensor "w".
Path make_folder() {
  char name[] = "/dev/shm/zeno_fuzz_XXXXXX";
  if (::mkdtemp(name) == nullptr) std::abort();
  checkpoint::write_safetensors(Path(name) / "x", {{{"w", DType::u8, {0}}, {}}}, {});
  return name;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const struct Folder {
    const Path path = make_folder();
    ~Folder() { remove_folder(path); }
  } folder;
  replace_file(folder.path / checkpoint::kIndexName,
               std::string_view(reinterpret_cast<const char*>(data), size));
  try {
    const checkpoint::WeightFolder weights(folder.path);
    for (const auto& [name, tensor] : weights.tensors())
      if (name != "w" || weights.find(name).info != tensor.info) std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) std::abort();
  }
  return 0;
}
