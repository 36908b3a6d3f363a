// Files. Everything Zeno reads or writes passes through here: transfers continue when the system moves fewer
// bytes than asked, every failure is an Error(io) that names the path and the reason, and a file is replaced
// in one step or not at all.
//
// Owners: File and MappedFile own their descriptor or mapping, ReplacingFile its temporary file. All calls
// block, and are known while they do (disk_operation.h). Threads: read_at and write_at of one File may run
// from several threads at once; the rest may not.
#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zeno {

// The system calls that can fail in ways a test must be able to provoke (a full disk, a cut write, a bad
// sector). They return what the system returns, with errno set.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual int open(const char* path, int flags, mode_t mode);
  virtual ssize_t pread(int fd, void* data, size_t bytes, off_t offset);
  virtual ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset);
  virtual int fsync(int fd);
  virtual int rename(const char* from, const char* to);
  virtual int stat(const char* path, struct stat* info);
  virtual int statvfs(const char* path, struct statvfs* info);
};

// Test seam: while one of these lives, the whole process uses the given file system.
class FileSystemOverride {
 public:
  explicit FileSystemOverride(FileSystem& replacement);
  ~FileSystemOverride();
  FileSystemOverride(const FileSystemOverride&) = delete;
  FileSystemOverride& operator=(const FileSystemOverride&) = delete;

 private:
  FileSystem* previous_;
};

// The one in use now, for code that makes such calls itself.
FileSystem& file_system();

using Path = std::filesystem::path;
inline constexpr size_t kDirectAlign = 4096;

class File {
 public:
  static File open(const Path& path);    // to read; must be a regular file
  static File create(const Path& path);  // to read and write; truncates an existing file
  // To read and write; replaces an existing file by `contents` in one step.
  static File replace(const Path& path, std::string_view contents);
  static File open_to_write(const Path& path);  // a file that is there, as it is; to read too
  // An existing file, bypassing the page cache: addresses, sizes and offsets of transfers must be multiples
  // of kDirectAlign. Uses the page cache if the file system does not support that.
  static File open_direct(const Path& path);           // to read
  static File open_direct_to_write(const Path& path);  // to write
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const Path& path() const { return path_; }
  int fd() const { return fd_; }
  uint64_t size() const;
  // All of the bytes, or an Error; a file that ends early is an Error too.
  void read_at(void* data, size_t bytes, uint64_t offset) const;
  void write_at(const void* data, size_t bytes, uint64_t offset);
  void resize(uint64_t bytes);
  void sync();
  // Closes and reports what the system says on closing; the destructor closes silently.
  void close();

 private:
  void write_back();
  File(Path path, int fd, bool direct = false) : path_(std::move(path)), fd_(fd), direct_(direct) {}
  // A direct transfer that the system cut short there continues through the page cache.
  bool ends_within_page(size_t done, size_t bytes) const {
    return direct_ && done < bytes && done % kDirectAlign != 0;
  }
  Path path_;
  int fd_ = -1;
  bool direct_ = false;  // bypasses the page cache, if the file system can
};

// A file as memory, read only. The file must not shrink while it is mapped.
class MappedFile {
 public:
  explicit MappedFile(const Path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A file that appears under its name only when commit() has put it on the disk: written beside it as
// "<name>.tmp", synced, renamed, folder synced. Without commit() the temporary file is removed. Where several
// processes may replace a file at once, each gives a suffix of its own.
class ReplacingFile {
 public:
  explicit ReplacingFile(Path path, std::string_view suffix = ".tmp");
  ReplacingFile(ReplacingFile&& other) = delete;
  ~ReplacingFile();

  File& file() { return file_; }
  const Path& path() const { return temporary_; }  // until commit()
  void commit();

 private:
  Path path_, temporary_;
  File file_;
  bool committed_ = false;
};

// The whole file; refuses files of more than `max_bytes`.
std::string read_file(const Path& path, uint64_t max_bytes = uint64_t(1) << 30);
// Writes or replaces the file in one step.
void replace_file(const Path& path, std::string_view contents, std::string_view suffix = ".tmp");
// What is at a path. If the disk cannot say, it is an Error(io), so that nothing is taken to be absent.
bool path_exists(const Path& path);
bool file_exists(const Path& path);  // a regular file
bool folder_exists(const Path& path);
uint64_t size_of_file(const Path& path);       // 0: no file
bool same_file(const Path& a, const Path& b);  // or folder, by whatever name; false where either is absent
void make_folders(const Path& path);
void remove_file(const Path& path);                      // a missing file is fine
void remove_folder(const Path& path);                    // with its contents; a missing folder is fine
std::vector<std::string> list_folder(const Path& path);  // names, sorted
// Bytes that this user can still write where `path` is.
uint64_t free_space(const Path& path);
// Makes the names in a folder (creations, renames) survive a power cut.
void sync_folder(const Path& path);

}  // namespace zeno
