#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "zeno/base/error.h"
#include "zeno/device/disk_queue.h"

namespace zeno {
namespace {

constexpr unsigned kMaxBuffers = 1024;
// The kernel registers at most this much in one piece.
constexpr size_t kMaxBuffer = size_t(1) << 30;

class UringQueue final : public DiskQueue {
 public:
  explicit UringQueue(const io_uring& ring) : ring_(ring) {
    can_register_ = io_uring_register_buffers_sparse(&ring_, kMaxBuffers) == 0;
  }
  ~UringQueue() override { io_uring_queue_exit(&ring_); }

  std::string_view name() const override { return "io_uring"; }

  bool register_buffer(std::span<std::byte> memory) override {
    for (; !memory.empty(); memory = memory.subspan(std::min(memory.size(), kMaxBuffer))) {
      const auto piece = memory.first(std::min(memory.size(), kMaxBuffer));
      const iovec place{piece.data(), piece.size()};
      const unsigned index = unsigned(buffers_.size());
      if (!can_register_ || index == kMaxBuffers ||
          io_uring_register_buffers_update_tag(&ring_, index, &place, nullptr, 1) != 1) {
        return false;
      }
      buffers_.push_back(piece);
    }
    return true;
  }

  void submit(const DiskRequest& request) override {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    ensure(sqe != nullptr, "[disk] more requests in flight than the ring has room for");
    const auto bytes = unsigned(request.bytes);
    const int buffer = buffer_of(request);
    if (buffer >= 0 && request.write) {
      io_uring_prep_write_fixed(sqe, request.fd, request.data, bytes, request.offset, buffer);
    } else if (buffer >= 0) {
      io_uring_prep_read_fixed(sqe, request.fd, request.data, bytes, request.offset, buffer);
    } else if (request.write) {
      io_uring_prep_write(sqe, request.fd, request.data, bytes, request.offset);
    } else {
      io_uring_prep_read(sqe, request.fd, request.data, bytes, request.offset);
    }
    io_uring_sqe_set_data64(sqe, uint64_t(request.tag));
    io_uring_submit(&ring_);  // what the kernel does not take now, wait() offers again
  }

  size_t wait(std::span<DiskCompletion> done) override {
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&ring_, &cqe) != 0) {
      const int result = io_uring_submit_and_wait(&ring_, 1);
      if (result >= 0 || result == -EINTR) continue;
      ensure(result == -EAGAIN || result == -EBUSY, "[disk] io_uring_enter failed: error {}", -result);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the kernel is short of memory
    }
    size_t count = 0;
    while (count < done.size() && io_uring_peek_cqe(&ring_, &cqe) == 0) {
      done[count++] = {int(io_uring_cqe_get_data64(cqe)), cqe->res};
      io_uring_cqe_seen(&ring_, cqe);
    }
    return count;
  }

 private:
  // Index of the registered piece that holds the request's memory, or -1.
  int buffer_of(const DiskRequest& request) const {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (request.data >= buffers_[i].data() &&
          request.data + request.bytes <= buffers_[i].data() + buffers_[i].size()) {
        return int(i);
      }
    }
    return -1;
  }

  io_uring ring_;
  bool can_register_;
  std::vector<std::span<std::byte>> buffers_;
};

}  // namespace

std::unique_ptr<DiskQueue> make_uring_queue(int depth) {
  io_uring ring;
  if (io_uring_queue_init(unsigned(depth), &ring, 0) != 0) return nullptr;
  return std::make_unique<UringQueue>(ring);
}

}  // namespace zeno
