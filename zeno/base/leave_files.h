// The end of a process that has files on a disk that does not respond. The kernel closes them before the
// parent learns that the process has ended, and such a disk does not respond to that either.
#pragma once

namespace zeno {

// Where a file operation has had no answer for a moment: starts a process that shares the open files of this
// one and closes them once this one has ended, so that nothing has to wait for that. It takes little memory
// and stays until the disk responds. Once; later calls do nothing. To be called just before _exit().
void leave_files_behind() noexcept;

}  // namespace zeno
