#include "zeno/base/disk_watch.h"

#include "zeno/base/disk_operation.h"
#include "zeno/base/error.h"
#include "zeno/base/leave.h"

namespace zeno {

DiskWatch::DiskWatch()
    : watch_([] {
        const std::optional<DiskStall> stall = find_disk_stall(std::chrono::minutes(5));
        if (stall) leave(exit_code(ErrorKind::io), stall->text());
        return false;
      }) {}

}  // namespace zeno
