#include "zeno/device/disk_store.h"

#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "zeno/base/disk_operation.h"
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
        files_(write ? store.files_ : extent.files),
        missing_(extent.stretches.size()),
        slots_(size_t(store.options_.depth) * files_->size()) {
    if (!lane.copies && (!starts_page(memory) || extent.bytes % kDirectAlign != 0)) {
      const size_t bytes = slots_.size() * store.options_.request_bytes;
      lane.copies.reset(static_cast<std::byte*>(std::aligned_alloc(kDirectAlign, bytes)));
      require(lane.copies != nullptr, ErrorKind::memory, "[disk] the system refused {} of memory",
              format_bytes(bytes));
    }
    const size_t request = store.options_.request_bytes;
    for (size_t s = 0; s < missing_.size(); ++s) {
      const Stretch& stretch = extent.stretches[s];
      missing_[s] = div_ceil(stretch.end, request) - stretch.begin / request;
    }
  }

  // Ends when nothing is in flight any more, also after a failure: requests use the caller's memory.
  void run() {
    for (int s = 0; s < int(slots_.size()) && next_ < extent_.blocks.size(); ++s) start(s);
    std::vector<DiskCompletion> completions(slots_.size());
    while (true) {
      // Now, while the disk is busy.
      for (const size_t stretch : to_sum_) write_ ? sum(stretch) : verify(stretch);
      to_sum_.clear();
      if (in_flight_ == 0) break;
      const DiskOperation waiting(what(), folder());
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

  const char* what() const { return write_ ? "writing to" : "reading from"; }
  const Path& folder() const { return store_.options_.folders.front(); }
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
    if (write_) pass(block);
  }

  // A block's bytes are there. Stretches of which none is missing any more can be summed.
  void pass(size_t block) {
    if (!store_.options_.verify) return;
    const size_t begin = block * store_.options_.request_bytes;
    const size_t end = begin + store_.block_bytes(extent_, block);
    const auto& stretches = extent_.stretches;
    auto s = size_t(std::ranges::upper_bound(stretches, begin, {}, &Stretch::end) - stretches.begin());
    for (; s < stretches.size() && stretches[s].begin < end; ++s) {
      if (--missing_[s] == 0) to_sum_.push_back(s);
    }
  }

  // The system may do a part of the work here, not only in wait().
  void submit(int tag) {
    const DiskOperation submitting(what(), folder());
    const Slot& slot = slots_[size_t(tag)];
    const Block& block = extent_.blocks[slot.block];
    lane_.queue->submit({.write = write_,
                         .fd = (*files_)[size_t(block.file)].fd(),
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
      pass(slot.block);
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

  uint64_t checksum(const Stretch& stretch) const {
    return XXH3_64bits(memory_ + stretch.begin, stretch.end - stretch.begin);
  }

  void sum(size_t s) { extent_.stretches[s].checksum = checksum(extent_.stretches[s]); }

  void verify(size_t s) {
    const Stretch& stretch = extent_.stretches[s];
    const uint64_t got = checksum(stretch);
    if (got == stretch.checksum || !failure_.empty()) return;
    const size_t block = stretch.begin / store_.options_.request_bytes;
    const Block& place = extent_.blocks[block];
    const uint64_t at = place.offset + stretch.begin % store_.options_.request_bytes;
    failure_ = fmt::format(
        "[disk] {} is damaged at bytes {}-{} ({}): got checksum {:016x}, expected {:016x}; the drive or its "
        "memory is failing: resume from the last checkpoint on another drive",
        (*files_)[size_t(place.file)].path().string(), at, at + (stretch.end - stretch.begin), extent_.what,
        got, stretch.checksum);
  }

  void note_failure(const Slot& slot, std::string_view reason, std::string_view more) {
    const Block& place = extent_.blocks[slot.block];
    failure_ = fmt::format("[disk] cannot {} {} at byte {} ({}): {}{}", write_ ? "write" : "read",
                           (*files_)[size_t(place.file)].path().string(), place.offset + slot.done,
                           extent_.what, reason, more);
  }

  DiskStore& store_;
  Lane& lane_;
  Extent& extent_;
  std::byte* memory_;
  bool write_;
  std::shared_ptr<Files> files_;
  std::vector<size_t> missing_;  // blocks of each stretch
  std::vector<Slot> slots_;
  size_t next_ = 0;  // block to start
  int in_flight_ = 0;
  std::vector<size_t> to_sum_;  // stretches
  std::string failure_;         // the first
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

void DiskStore::reserve_head(size_t bytes) {
  ensure(extents_.empty(), "[disk] reserve_head() after add()");
  for (uint64_t& size : sizes_) size = round_up(bytes, kDirectAlign);
}

int DiskStore::add(size_t bytes, std::string what, std::vector<size_t> cuts) {
  ensure(!files_, "[disk] add() after create(): {}", what);
  Extent extent{.what = std::move(what), .bytes = bytes};
  const size_t blocks = div_ceil(bytes, options_.request_bytes);
  extent.blocks.reserve(blocks);
  for (size_t b = 0; b < blocks; ++b) {
    const size_t file = next_++ % sizes_.size();
    extent.blocks.push_back({.file = int(file), .offset = sizes_[file]});
    sizes_[file] += round_up(block_bytes(extent, b), kDirectAlign);
  }
  if (cuts.empty()) {
    for (size_t b = 0; b < blocks; ++b) cuts.push_back(b * options_.request_bytes);
  }
  for (size_t c = 0; c < cuts.size(); ++c)
    extent.stretches.push_back({cuts[c], c + 1 < cuts.size() ? cuts[c + 1] : bytes});
  extents_.push_back(std::move(extent));
  return int(extents_.size()) - 1;
}

size_t DiskStore::bytes() const {
  size_t sum = 0;
  for (const uint64_t size : sizes_) sum += size;
  return sum;
}

std::string_view DiskStore::engine() const { return reads_->queue->name(); }

// The file that is given away has its name until it is moved.
Path DiskStore::file_path(const Path& folder, int turn) const {
  return folder / fmt::format("zeno-{}{}.swap", options_.name, turn % 2 == 0 ? "" : "b");
}

std::shared_ptr<DiskStore::Files> DiskStore::make_files() const {
  auto files = std::make_shared<Files>();
  for (const Path& folder : options_.folders) files->emplace_back(file_path(folder, given_));
  check_space(*files);
  for (size_t f = 0; f < files->size(); ++f) (*files)[f].allocate(sizes_[f]);
  return files;
}

void DiskStore::create() {
  ensure(!files_, "[disk] create() was called twice");
  for (const Path& folder : options_.folders) {
    const Path other = file_path(folder, 1);
    if (file_exists(other)) SwapFile{other};  // a killed run left it: taken and removed
  }
  files_ = make_files();
}

bool DiskStore::can_give(const Path& folder) const {
  return files_->size() == 1 && options_.verify &&
         std::ranges::all_of(extents_, [&](const Extent& e) { return e.files == files_; }) &&
         can_move(options_.folders.front() / fmt::format("zeno-{}.probe", options_.name), folder);
}

DiskStore::Given DiskStore::give() {
  ensure(files_->size() == 1 && options_.verify, "[disk] {} files cannot be given away", files_->size());
  Given given{files_, {}};
  for (const Extent& extent : extents_) {
    for (const Stretch& stretch : extent.stretches) given.checksums.push_back(stretch.checksum);
  }
  ++given_;
  try {
    files_ = make_files();
  } catch (...) {
    --given_;  // continues in the old one
    throw;
  }
  return given;
}

void DiskStore::check_space(const Files& files) const {
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
}

bool DiskStore::register_buffer(std::span<std::byte> memory) {
  return reads_->queue->register_buffer(memory) && writes_->queue->register_buffer(memory);
}

void DiskStore::write(int index, std::span<const std::byte> from) {
  ensure(files_ != nullptr, "[disk] a write before create()");
  Extent& extent = extent_of(index, from.size());
  extent.files.reset();
  Transfer(*this, *writes_, extent, const_cast<std::byte*>(from.data()), true).run();
  extent.files = files_;
}

void DiskStore::read(int index, std::span<std::byte> to) {
  Extent& extent = extent_of(index, to.size());
  ensure(extent.files != nullptr, "[disk] {} is read before it was written", extent.what);
  Transfer(*this, *reads_, extent, to.data(), false).run();
}

DiskStore::Extent& DiskStore::extent_of(int index, size_t bytes) {
  Extent& extent = extents_.at(size_t(index));
  ensure(bytes == extent.bytes, "[disk] {}: got {} bytes, expected {}", extent.what, bytes, extent.bytes);
  return extent;
}

size_t DiskStore::block_bytes(const Extent& extent, size_t block) const {
  return std::min(options_.request_bytes, extent.bytes - block * options_.request_bytes);
}

}  // namespace zeno
