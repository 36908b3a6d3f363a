// State on disk: extents of fixed size, written and read whole. Their blocks are striped over the folders'
// files (one drive each) and bypass the page cache with many requests in flight. Their checksums are kept in
// memory, so that a read returns what was written, or throws an Error(io) that says what is damaged.
//
// Owns its files and removes them with itself; they do not outlive the process as state, unless they are
// given away. All calls block. Threads: one may read while another writes (other extents) or gives; no two
// may read at the same time, and none may write while another writes or gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zeno/base/file.h"
#include "zeno/device/disk_file.h"
#include "zeno/device/disk_queue.h"

namespace zeno {

struct DiskOptions {
  std::vector<Path> folders;
  std::string name;    // "rank3": files <folder>/zeno-rank3.swap, and zeno-rank3b.swap after giving away
  bool verify = true;  // verify checksums on read
  size_t request_bytes = size_t(1) << 20;
  int depth = 8;  // requests in flight, per direction and per folder
  std::function<std::unique_ptr<DiskQueue>(int depth)> make_queue = make_disk_queue;
};

class DiskStore {
 public:
  explicit DiskStore(DiskOptions options);
  ~DiskStore();
  DiskStore(const DiskStore&) = delete;
  DiskStore& operator=(const DiskStore&) = delete;

  // Room at the beginning of the files for the receiver of a given file, before add().
  void reserve_head(size_t bytes);
  // An extent, before create(). `what` names it in errors: "optimizer state of model.layers.3". Checksums are
  // kept of the stretches that begin at `cuts` (ascending from 0), or of every request.
  int add(size_t bytes, std::string what, std::vector<size_t> cuts = {});
  // Of all extents as they lie on disk, in whole pages.
  size_t bytes() const;
  // How transfers are made: "io_uring" or "threads".
  std::string_view engine() const;
  // Creates the files, which take all of their space now or not at all.
  void create();
  // Memory that transfers will use for as long as the store lives. False if the kernel does not allow it (the
  // limit of locked memory) or it has no benefit; transfers work all the same.
  bool register_buffer(std::span<std::byte> memory);

  // The whole extent. Page-aligned memory goes directly to the disk; other memory is copied.
  void write(int extent, std::span<const std::byte> from);
  void read(int extent, std::span<std::byte> to);

  // A file as it was when it was given away: the head, then the extents in the order of add(), each in whole
  // pages. Removed with its last owner, unless it is moved.
  struct Given {
    std::shared_ptr<std::vector<SwapFile>> owner;
    std::vector<uint64_t> checksums;  // of all stretches, in order
    SwapFile& file() const { return owner->front(); }
  };
  // Can a file be moved into this folder? Yes if there is one file, on the same file system, that has
  // checksums and in which every extent was written since the last file was given.
  bool can_give(const Path& folder) const;
  // From now on extents are written to a new file, whose space is reserved here; each is read from where it
  // was last written. Nothing is copied.
  Given give();

 private:
  using Files = std::vector<SwapFile>;  // by folder
  struct Block {
    int file;
    uint64_t offset;
  };
  struct Stretch {
    size_t begin, end;
    uint64_t checksum = 0;
  };
  struct Extent {
    std::string what;
    size_t bytes;
    std::shared_ptr<Files> files;  // where it was last written; null: never, or not completely
    std::vector<Block> blocks;
    std::vector<Stretch> stretches;
  };
  struct Lane;     // one direction: its queue and the memory for copies
  class Transfer;  // one call of read or write

  Extent& extent_of(int extent, size_t bytes);
  size_t block_bytes(const Extent& extent, size_t block) const;
  Path file_path(const Path& folder, int turn) const;
  std::shared_ptr<Files> make_files() const;
  void check_space(const Files& files) const;

  DiskOptions options_;
  std::vector<Extent> extents_;
  std::vector<uint64_t> sizes_;   // of the files
  size_t next_ = 0;               // blocks assigned so far
  std::shared_ptr<Files> files_;  // to write to
  int given_ = 0;                 // number of files given away
  std::unique_ptr<Lane> reads_, writes_;
};

}  // namespace zeno
