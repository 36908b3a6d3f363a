// The io_uring side of a build without liburing.
#include "zeno/device/disk_queue.h"

namespace zeno {

std::unique_ptr<DiskQueue> make_uring_queue(int) { return nullptr; }

}  // namespace zeno
