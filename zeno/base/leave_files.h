// The end of a process that has files on a disk that does not respond. The kernel closes them before whoever
// waits for the process learns of its end, and such a disk does not answer that either.
#pragma once

namespace zeno {

// Where a file operation has had no answer for a moment: starts a process that shares the open files of this
// one and closes them once this one has gone, so that nobody has to wait for that. It takes little memory and
// stays until the disk responds. Once; later calls do nothing. To be called just before _exit().
void leave_files_behind() noexcept;

}  // namespace zeno
