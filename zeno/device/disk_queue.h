// Transfers in flight: requests go in, completions come out in any order. Two ways to do it: io_uring, and
// threads that read and write where io_uring is missing or forbidden.
//
// A queue belongs to one thread. submit() need not wait for the transfer, but a file system may make it;
// wait() blocks. Memory of a request must stay as it is until its completion has been taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace zeno {

struct DiskRequest {
  bool write = false;
  int fd = -1;
  std::byte* data = nullptr;  // a write only reads it
  size_t bytes = 0;           // at most 1 GiB
  uint64_t offset = 0;
  int tag = 0;  // comes back with the completion
};

struct DiskCompletion {
  int tag = 0;
  int64_t result = 0;  // bytes moved, perhaps fewer than asked, or -errno
};

class DiskQueue {
 public:
  virtual ~DiskQueue() = default;
  virtual std::string_view name() const = 0;
  // Memory of later requests, to spare the kernel the work of looking it up each time; it must stay for as
  // long as the queue. False where nothing comes of it, which does no harm.
  virtual bool register_buffer(std::span<std::byte> memory) = 0;
  // At most `depth` requests may be in flight.
  virtual void submit(const DiskRequest& request) = 0;
  // Waits until a request is done, fills in all that are (as far as there is room) and returns how many.
  // There must be a request in flight.
  virtual size_t wait(std::span<DiskCompletion> done) = 0;
};

// Null where the build or the kernel has no io_uring.
std::unique_ptr<DiskQueue> make_uring_queue(int depth);
// pread and pwrite of the FileSystem seam on `depth` threads.
std::unique_ptr<DiskQueue> make_thread_queue(int depth);
// io_uring where there is one, threads elsewhere.
std::unique_ptr<DiskQueue> make_disk_queue(int depth);

}  // namespace zeno
