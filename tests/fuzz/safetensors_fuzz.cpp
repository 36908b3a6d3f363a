// Any bytes as a .safetensors file: either it opens and every tensor can be read, or an Error says why not.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace zeno;
  static const int fd = ::memfd_create("fuzz", 0);
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, data, size, 0) != ssize_t(size)) std::abort();
  try {
    const auto file = checkpoint::SafetensorsFile::open("/proc/self/fd/" + std::to_string(fd));
    for (const auto& tensor : file.tensors()) {
      std::vector<uint8_t> bytes(tensor.end - tensor.begin);
      file.read_bytes(tensor, 0, bytes.size(), bytes.data());
      if (!tensor.dtype || !is_float(*tensor.dtype)) continue;
      std::vector<float> values(size_t(tensor.count));
      file.read(tensor, 0, tensor.count, values.data());
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) std::abort();
  }
  return 0;
}
