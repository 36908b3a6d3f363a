#include "zeno/comm/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/device/ledger.h"

namespace zeno::comm {

FileHandle::~FileHandle() {
  if (fd_ >= 0) ::close(fd_);
}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileHandle make_memory_file() {
  FileHandle file(memfd_create("zeno", MFD_CLOEXEC));
  require(file.get() >= 0, ErrorKind::memory, "[comm] the system refused a memory file: {}",
          std::strerror(errno));
  return file;
}

FileHandle open_memory_file(int64_t pid, int fd) {
  return FileHandle(::open(fmt::format("/proc/{}/fd/{}", pid, fd).c_str(), O_RDWR | O_CLOEXEC));
}

SharedRegion SharedRegion::anonymous(size_t bytes) {
  void* data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(data != MAP_FAILED, ErrorKind::memory, "[comm] the system refused {} of address space: {}",
          format_bytes(bytes), std::strerror(errno));
  return {static_cast<std::byte*>(data), bytes};
}

SharedRegion SharedRegion::map(const FileHandle& file, size_t offset, size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), off_t(offset));
  require(data != MAP_FAILED, ErrorKind::memory, "[comm] the system refused to map {} of shared memory: {}",
          format_bytes(bytes), std::strerror(errno));
  madvise(data, bytes, MADV_HUGEPAGE);  // helps where the kernel allows huge pages in shared memory
  return {static_cast<std::byte*>(data), bytes};
}

SharedRegion::~SharedRegion() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

SharedRegion& SharedRegion::operator=(SharedRegion&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace zeno::comm
