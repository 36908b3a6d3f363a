// Any bytes as a file of torch.save: either it opens and every tensor can be read, or an Error says why not.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "zeno/base/error.h"
#include "zeno/checkpoint/torch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace zeno;
  static const int fd = ::memfd_create("fuzz", 0);
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, data, size, 0) != ssize_t(size)) std::abort();
  const auto only_errors_of_data = [](const auto& body) {
    try {
      body();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) std::abort();
    }
  };
  only_errors_of_data([&] {
    const auto file = checkpoint::TorchFile::open("/proc/self/fd/" + std::to_string(fd));
    for (const auto& tensor : file.tensors()) {
      if (is_float(tensor.dtype)) only_errors_of_data([&] { file.read(tensor); });
    }
  });
  // Few random bytes are an archive: the pickle inside gets its own chance.
  only_errors_of_data([&] { checkpoint::parse_pickle({reinterpret_cast<const char*>(data), size}, "fuzz"); });
  return 0;
}
