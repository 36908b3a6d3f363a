#include "zeno/base/disk_watch.h"

#include "zeno/base/disk_operation.h"
#include "zeno/base/error.h"
#include "zeno/base/leave.h"

namespace zeno {

DiskWatch::DiskWatch(std::chrono::milliseconds longest)
    : watch_([longest] {
        const std::optional<DiskStall> stall = find_disk_stall(longest);
        if (stall) leave(exit_code(ErrorKind::io), stall->text());
        return false;
      }) {}

}  // namespace zeno
