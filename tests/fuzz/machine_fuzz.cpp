// Any bytes as a machine profile: either it is one, or an Error says why not.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "zeno/base/error.h"
#include "zeno/plan/machine/machine.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace zeno;
  static const int fd = ::memfd_create("fuzz", 0);
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, data, size, 0) != ssize_t(size)) std::abort();
  try {
    (void)plan::load_machine("/proc/self/fd/" + std::to_string(fd));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) std::abort();
  }
  return 0;
}
