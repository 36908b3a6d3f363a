// Memory that several ranks see: private pages for threads, a memory file for processes. Zeroed and
// page-aligned; pages are allocated when touched. A memory file has no name that could outlive a killed job
// and is not subject to the size limit of /dev/shm; other processes of the same user open it through /proc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace zeno::comm {

// An open file descriptor.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int fd) : fd_(fd) {}
  ~FileHandle();
  FileHandle(FileHandle&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileHandle& operator=(FileHandle&& other) noexcept;
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// A new, empty memory file.
FileHandle make_memory_file();
// The memory file `fd` of process `pid`; invalid (get() < 0) when the system does not permit it.
FileHandle open_memory_file(int64_t pid, int fd);

class SharedRegion {
 public:
  SharedRegion() = default;
  // Private to this process, shared by its threads.
  static SharedRegion anonymous(size_t bytes);
  // [offset, offset + bytes) of a memory file. Throws Error(memory).
  static SharedRegion map(const FileHandle& file, size_t offset, size_t bytes);
  ~SharedRegion();
  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  SharedRegion(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace zeno::comm
