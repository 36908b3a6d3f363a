#include "zeno/device/disk_store.h"

#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/base/math.h"
#include "zeno/device/ledger.h"

namespace zeno {
namespace {

// A request that moves nothing this often (the system is busy, or cuts within a page) has failed. The waits
// between the attempts make it half a second and more.
constexpr int kMaxAttempts = 500;

const char* hint(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "; free some space and resume from the last checkpoint";
    case EIO:
      return "; the drive may be failing: see the kernel's log, then resume from the last checkpoint";
    default:
      return "";
  }
}

bool starts_page(const std::byte* p) { return reinterpret_cast<uintptr_t>(p) % kDirectAlign == 0; }

struct FreeMemory {
  void operator()(std::byte* p) const { std::free(p); }
};
using PageMemory = std::unique_ptr<std::byte, FreeMemory>;

}  // namespace

struct DiskStore::Lane {
  std::unique_ptr<DiskQueue> queue;
  PageMemory copies;  // a block for each request in flight; made when first needed
};

class DiskStore::Transfer {
 public:
  Transfer(DiskStore& store, Lane& lane, Extent& extent, std::byte* memory, bool write)
      : store_(store),
        lane_(lane),
        extent_(extent),
        memory_(memory),
        write_(write),
        slots_(size_t(store.options_.depth) * store.files_.size()) {
    if (!lane.copies && (!starts_page(memory) || extent.bytes % kDirectAlign != 0)) {
      const size_t bytes = slots_.size() * store.options_.request_bytes;
      lane.copies.reset(static_cast<std::byte*>(std::aligned_alloc(kDirectAlign, bytes)));
      require(lane.copies != nullptr, ErrorKind::memory, "[disk] the system refused {} of memory",
              format_bytes(bytes));
    }
  }

  // Ends when nothing is in flight any more, also after a failure: requests use the caller's memory.
  void run() {
    for (int s = 0; s < int(slots_.size()) && next_ < extent_.blocks.size(); ++s) start(s);
    std::vector<DiskCompletion> completions(slots_.size());
    while (true) {
      // Now, while the disk is busy.
      for (const size_t block : to_sum_) write_ ? sum(block) : verify(block);
      to_sum_.clear();
      if (in_flight_ == 0) break;
      const size_t count = lane_.queue->wait(completions);
      for (size_t i = 0; i < count; ++i) take(completions[i]);
    }
    if (!failure_.empty()) throw Error(ErrorKind::io, failure_);
  }

 private:
  struct Slot {
    size_t block = 0;
    std::byte* data = nullptr;
    size_t bytes = 0, done = 0;  // of whole pages
    int attempts = 0;            // since the last page that was moved
    bool copied = false;
  };

  std::byte* payload(size_t block) const { return memory_ + block * store_.options_.request_bytes; }

  void start(int tag) {
    const size_t block = next_++;
    const size_t bytes = store_.block_bytes(extent_, block);
    Slot& slot = slots_[size_t(tag)];
    slot = {.block = block, .data = payload(block), .bytes = round_up(bytes, kDirectAlign)};
    slot.copied = slot.bytes != bytes || !starts_page(slot.data);
    if (slot.copied) {
      slot.data = lane_.copies.get() + size_t(tag) * store_.options_.request_bytes;
      if (write_) {
        std::memcpy(slot.data, payload(block), bytes);
        std::memset(slot.data + bytes, 0, slot.bytes - bytes);
      }
    }
    submit(tag);
    ++in_flight_;
    if (write_ && store_.options_.verify) to_sum_.push_back(block);
  }

  void submit(int tag) {
    const Slot& slot = slots_[size_t(tag)];
    const Block& block = extent_.blocks[slot.block];
    lane_.queue->submit({.write = write_,
                         .fd = store_.files_[size_t(block.file)].fd(),
                         .data = slot.data + slot.done,
                         .bytes = slot.bytes - slot.done,
                         .offset = block.offset + slot.done,
                         .tag = tag});
  }

  void take(const DiskCompletion& completion) {
    Slot& slot = slots_[size_t(completion.tag)];
    if (failure_.empty() && !advance(slot, completion.result)) return submit(completion.tag);
    --in_flight_;
    if (!failure_.empty()) return;
    if (!write_) {
      if (slot.copied) std::memcpy(payload(slot.block), slot.data, store_.block_bytes(extent_, slot.block));
      if (store_.options_.verify) to_sum_.push_back(slot.block);
    }
    if (next_ < extent_.blocks.size()) start(completion.tag);
  }

  // True when the block is through or the transfer has failed.
  bool advance(Slot& slot, int64_t result) {
    if (result == 0 || (result < 0 && result != -EAGAIN && result != -EINTR)) {
      const int error = result < 0 ? int(-result) : EIO;
      const bool end = result == 0 && !write_;
      note_failure(slot, end ? "the file ends there; something cut it short" : std::strerror(error),
                   end ? "" : hint(error));
      return true;
    }
    const size_t before = slot.done;
    if (result > 0) slot.done += std::min(size_t(result), slot.bytes - slot.done);
    if (slot.done == slot.bytes) return true;
    slot.done = slot.done / kDirectAlign * kDirectAlign;  // a page that was cut is moved once more
    if (slot.done > before) {
      slot.attempts = 0;
    } else if (++slot.attempts == kMaxAttempts) {
      note_failure(slot, result < 0 ? std::strerror(int(-result)) : "cut short within a page",
                   fmt::format(", {} times", kMaxAttempts));
      return true;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  uint64_t checksum(size_t block) const {
    return XXH3_64bits(payload(block), store_.block_bytes(extent_, block));
  }

  void sum(size_t block) { extent_.blocks[block].checksum = checksum(block); }

  void verify(size_t block) {
    const uint64_t got = checksum(block), expected = extent_.blocks[block].checksum;
    if (got == expected || !failure_.empty()) return;
    const Block& place = extent_.blocks[block];
    failure_ = fmt::format(
        "[disk] {} is damaged at bytes {}-{} ({}): got checksum {:016x}, expected {:016x}; the drive or its "
        "memory is failing: resume from the last checkpoint on another drive",
        store_.files_[size_t(place.file)].path().string(), place.offset,
        place.offset + store_.block_bytes(extent_, block), extent_.what, got, expected);
  }

  void note_failure(const Slot& slot, std::string_view reason, std::string_view more) {
    const Block& place = extent_.blocks[slot.block];
    failure_ = fmt::format("[disk] cannot {} {} at byte {} ({}): {}{}", write_ ? "write" : "read",
                           store_.files_[size_t(place.file)].path().string(), place.offset + slot.done,
                           extent_.what, reason, more);
  }

  DiskStore& store_;
  Lane& lane_;
  Extent& extent_;
  std::byte* memory_;
  bool write_;
  std::vector<Slot> slots_;
  size_t next_ = 0;  // block to start
  int in_flight_ = 0;
  std::vector<size_t> to_sum_;
  std::string failure_;  // the first
};

DiskStore::DiskStore(DiskOptions options)
    : options_(std::move(options)),
      sizes_(options_.folders.size()),
      reads_(std::make_unique<Lane>()),
      writes_(std::make_unique<Lane>()) {
  require(!options_.folders.empty(), ErrorKind::usage, "[disk] no folder is named for state on disk");
  constexpr size_t kMaxRequest = size_t(1) << 30;
  require(options_.request_bytes > 0 && options_.request_bytes % kDirectAlign == 0 &&
              options_.request_bytes <= kMaxRequest,
          ErrorKind::usage, "[disk] bytes of a request: got {}, expected a multiple of {} up to {}",
          options_.request_bytes, kDirectAlign, kMaxRequest);
  require(options_.depth > 0, ErrorKind::usage, "[disk] requests in flight: got {}, expected at least 1",
          options_.depth);
  const int depth = options_.depth * int(options_.folders.size());
  for (Lane* lane : {reads_.get(), writes_.get()}) lane->queue = options_.make_queue(depth);
}

DiskStore::~DiskStore() = default;

int DiskStore::add(size_t bytes, std::string what) {
  ensure(files_.empty(), "[disk] add() after create(): {}", what);
  Extent extent{.what = std::move(what), .bytes = bytes};
  const size_t blocks = div_ceil(bytes, options_.request_bytes);
  extent.blocks.reserve(blocks);
  for (size_t b = 0; b < blocks; ++b) {
    const size_t file = next_++ % sizes_.size();
    extent.blocks.push_back({.file = int(file), .offset = sizes_[file]});
    sizes_[file] += round_up(block_bytes(extent, b), kDirectAlign);
  }
  extents_.push_back(std::move(extent));
  return int(extents_.size()) - 1;
}

size_t DiskStore::bytes() const {
  size_t sum = 0;
  for (const uint64_t size : sizes_) sum += size;
  return sum;
}

std::string_view DiskStore::engine() const { return reads_->queue->name(); }

void DiskStore::create() {
  ensure(files_.empty(), "[disk] create() was called twice");
  std::vector<SwapFile> files;
  for (const Path& folder : options_.folders)
    files.emplace_back(folder / fmt::format("zeno-{}.swap", options_.name));
  for (size_t f = 0; f < files.size(); ++f) {
    uint64_t needed = 0;  // of all files on this file system
    for (size_t g = 0; g < files.size(); ++g) {
      if (files[g].file_system_id() == files[f].file_system_id()) needed += sizes_[g];
    }
    const uint64_t available = free_space(options_.folders[f]);
    require(
        available >= needed, ErrorKind::io,
        "[disk] too little space in {} for state on disk: got {} free, expected {}; free some space or name "
        "another folder",
        options_.folders[f].string(), format_bytes(available), format_bytes(needed));
  }
  for (size_t f = 0; f < files.size(); ++f) files[f].allocate(sizes_[f]);
  files_ = std::move(files);
}

bool DiskStore::register_buffer(std::span<std::byte> memory) {
  return reads_->queue->register_buffer(memory) && writes_->queue->register_buffer(memory);
}

void DiskStore::write(int index, std::span<const std::byte> from) {
  Extent& extent = extent_of(index, from.size());
  extent.written = false;
  Transfer(*this, *writes_, extent, const_cast<std::byte*>(from.data()), true).run();
  extent.written = true;
}

void DiskStore::read(int index, std::span<std::byte> to) {
  Extent& extent = extent_of(index, to.size());
  ensure(extent.written, "[disk] {} is read before it was written", extent.what);
  Transfer(*this, *reads_, extent, to.data(), false).run();
}

DiskStore::Extent& DiskStore::extent_of(int index, size_t bytes) {
  ensure(!files_.empty(), "[disk] a transfer before create()");
  Extent& extent = extents_.at(size_t(index));
  ensure(bytes == extent.bytes, "[disk] {}: got {} bytes, expected {}", extent.what, bytes, extent.bytes);
  return extent;
}

size_t DiskStore::block_bytes(const Extent& extent, size_t block) const {
  return std::min(options_.request_bytes, extent.bytes - block * options_.request_bytes);
}

}  // namespace zeno
