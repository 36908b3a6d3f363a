#include "zeno/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "zeno/base/disk_operation.h"
#include "zeno/base/error.h"

namespace zeno {
namespace {

FileSystem system_calls;
std::atomic<FileSystem*> current{&system_calls};

// Small enough that a slow disk has an answer for each long before it looks dead (disk_operation.h).
constexpr size_t kMaxTransfer = size_t(64) << 20;

const char* hint(int error) {
  switch (error) {
    case ENOENT:
      return "; check the path";
    case EACCES:
    case EPERM:
    case EROFS:
      return "; check the permissions";
    case ENOSPC:
    case EDQUOT:
      return "; free some space or write elsewhere";
    case EMFILE:
    case ENFILE:
      return "; raise the limit of open files (ulimit -n)";
    default:
      return "";
  }
}

[[noreturn]] void fail_errno(const char* what, const Path& path, int error = errno) {
  fail(ErrorKind::io, "[file] {} {}: {}{}", what, path.string(), std::strerror(error), hint(error));
}

int open_or_fail(const Path& path, int flags, const char* what) {
  const DiskOperation waiting("opening", path);
  int fd;
  do {
    fd = file_system().open(path.c_str(), flags | O_CLOEXEC, 0644);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) fail_errno(what, path);
  return fd;
}

// False: nothing is there. An empty path is nothing.
bool inspect(const Path& path, struct stat& info) {
  const DiskOperation waiting("inspecting", path);
  if (file_system().stat(path.c_str(), &info) == 0) return true;
  const bool absent = errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG;
  if (!absent) fail_errno("cannot inspect", path);
  return false;
}

bool is_link(const Path& path) {
  const DiskOperation waiting("inspecting", path);
  std::error_code ignored;
  return std::filesystem::is_symlink(path, ignored);
}

std::vector<std::string> names_in(const Path& path, std::error_code& error) {
  const DiskOperation waiting("listing", path);
  std::vector<std::string> names;
  std::filesystem::directory_iterator entry(path, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    names.push_back(entry->path().filename().string());
  return names;
}

// Memory file systems may not have the flag.
int open_past_cache(const Path& path, int flags) {
  const DiskOperation waiting("opening", path);
  const int fd = file_system().open(path.c_str(), flags | O_DIRECT | O_CLOEXEC, 0);
  return fd >= 0 ? fd : open_or_fail(path, flags, "cannot open");
}

}  // namespace

int FileSystem::open(const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }
ssize_t FileSystem::pread(int fd, void* data, size_t bytes, off_t offset) {
  return ::pread(fd, data, bytes, offset);
}
ssize_t FileSystem::pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  return ::pwrite(fd, data, bytes, offset);
}
int FileSystem::fsync(int fd) { return ::fsync(fd); }
int FileSystem::rename(const char* from, const char* to) { return std::rename(from, to); }
int FileSystem::stat(const char* path, struct stat* info) { return ::stat(path, info); }
int FileSystem::statvfs(const char* path, struct statvfs* info) { return ::statvfs(path, info); }

FileSystemOverride::FileSystemOverride(FileSystem& replacement) : previous_(current.exchange(&replacement)) {}
FileSystemOverride::~FileSystemOverride() { current.store(previous_, std::memory_order_release); }
FileSystem& file_system() { return *current.load(std::memory_order_acquire); }

File File::open(const Path& path) {
  // Non-blocking, so that opening a named pipe by mistake is an error and not a hang.
  File file(path, open_or_fail(path, O_RDONLY | O_NONBLOCK, "cannot open"));
  const DiskOperation waiting("inspecting", path);
  struct stat info;
  if (::fstat(file.fd_, &info) != 0) fail_errno("cannot inspect", path);
  require(S_ISREG(info.st_mode), ErrorKind::io, "[file] cannot read {}: not a regular file", path.string());
  return file;
}

File File::create(const Path& path) {
  return File(path, open_or_fail(path, O_RDWR | O_CREAT | O_TRUNC, "cannot create"));
}

File File::open_direct(const Path& path) { return File(path, open_past_cache(path, O_RDONLY), true); }

File File::open_direct_to_write(const Path& path) {
  return File(path, open_past_cache(path, O_WRONLY), true);
}

File File::open_to_write(const Path& path) { return File(path, open_or_fail(path, O_RDWR, "cannot open")); }

File File::replace(const Path& path, std::string_view contents) {
  replace_file(path, contents);
  return open_to_write(path);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), direct_(other.direct_) {}
File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(direct_, other.direct_);
  return *this;
}
File::~File() {
  if (fd_ < 0) return;
  const DiskOperation waiting("closing", path_);
  ::close(fd_);
}

uint64_t File::size() const {
  const DiskOperation waiting("inspecting", path_);
  struct stat info;
  if (::fstat(fd_, &info) != 0) fail_errno("cannot inspect", path_);
  return uint64_t(info.st_size);
}

void File::read_at(void* data, size_t bytes, uint64_t offset) const {
  size_t done = 0;
  while (done < bytes) {
    const DiskOperation waiting("reading", path_);
    const ssize_t n = file_system().pread(fd_, static_cast<std::byte*>(data) + done,
                                          std::min(bytes - done, kMaxTransfer), off_t(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("cannot read", path_);
    require(n > 0, ErrorKind::io,
            "[file] cannot read {}: ends at byte {}, expected at least {}; it was cut short", path_.string(),
            offset + done, offset + bytes);
    done += size_t(n);
    if (ends_within_page(done, bytes)) {
      return File(path_, open_or_fail(path_, O_RDONLY, "cannot open"))
          .read_at(static_cast<std::byte*>(data) + done, bytes - done, offset + done);
    }
  }
}

void File::write_at(const void* data, size_t bytes, uint64_t offset) {
  size_t done = 0;
  while (done < bytes) {
    const DiskOperation waiting("writing", path_);
    const ssize_t n = file_system().pwrite(fd_, static_cast<const std::byte*>(data) + done,
                                           std::min(bytes - done, kMaxTransfer), off_t(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_errno("cannot write", path_, n < 0 ? errno : EIO);
    done += size_t(n);
    if (ends_within_page(done, bytes)) {
      return File(path_, open_or_fail(path_, O_WRONLY, "cannot open"))
          .write_at(static_cast<const std::byte*>(data) + done, bytes - done, offset + done);
    }
  }
}

void File::resize(uint64_t bytes) {
  const DiskOperation waiting("resizing", path_);
  if (::ftruncate(fd_, off_t(bytes)) != 0) fail_errno("cannot resize", path_);
}

void File::sync() {
  write_back();
  const DiskOperation waiting("syncing", path_);
  if (file_system().fsync(fd_) != 0) fail_errno("cannot sync", path_);
}

// In parts, since a disk may need minutes for what a large file has left in the page cache. A file system
// without such parts syncs the whole.
void File::write_back() {
  const uint64_t bytes = size();
  const auto each_part = [&](unsigned flags) {
    for (uint64_t begin = 0; begin < bytes; begin += kMaxTransfer) {
      const DiskOperation waiting("syncing", path_);
      if (::sync_file_range(fd_, off64_t(begin), off64_t(kMaxTransfer), flags) == 0) continue;
      // An error of the disk is told once, here: sync() would not see it again.
      if (errno == EIO || errno == ENOSPC || errno == EDQUOT) fail_errno("cannot sync", path_);
      return;
    }
  };
  if (bytes <= kMaxTransfer) return;
  each_part(SYNC_FILE_RANGE_WRITE);
  each_part(SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
}

void File::close() {
  const DiskOperation waiting("closing", path_);
  if (::close(std::exchange(fd_, -1)) != 0) fail_errno("cannot close", path_);
}

MappedFile::MappedFile(const Path& path) {
  const File file = File::open(path);
  size_ = file.size();
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (data == MAP_FAILED) fail_errno("cannot map", path);
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}
MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

ReplacingFile::ReplacingFile(Path path, std::string_view suffix)
    : path_(std::move(path)),
      temporary_(path_.string() + std::string(suffix)),
      file_(File::create(temporary_)) {}

ReplacingFile::~ReplacingFile() {
  if (committed_) return;
  const DiskOperation waiting("removing", temporary_);
  ::unlink(temporary_.c_str());
}

void ReplacingFile::commit() {
  file_.sync();
  file_.close();
  const DiskOperation waiting("renaming", path_);
  if (file_system().rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno("cannot rename onto", path_);
  committed_ = true;
  sync_folder(path_.parent_path());
}

std::string read_file(const Path& path, uint64_t max_bytes) {
  const File file = File::open(path);
  const uint64_t size = file.size();
  require(size <= max_bytes, ErrorKind::data, "[file] {} is too large: got {} bytes, expected at most {}",
          path.string(), size, max_bytes);
  std::string contents(size, '\0');
  file.read_at(contents.data(), contents.size(), 0);
  return contents;
}

void replace_file(const Path& path, std::string_view contents, std::string_view suffix) {
  ReplacingFile replacing(path, suffix);
  replacing.file().write_at(contents.data(), contents.size(), 0);
  replacing.commit();
}

bool path_exists(const Path& path) {
  struct stat info;
  return inspect(path, info);
}

bool file_exists(const Path& path) {
  struct stat info;
  return inspect(path, info) && S_ISREG(info.st_mode);
}

bool folder_exists(const Path& path) {
  struct stat info;
  return inspect(path, info) && S_ISDIR(info.st_mode);
}

uint64_t size_of_file(const Path& path) {
  struct stat info;
  return inspect(path, info) && S_ISREG(info.st_mode) ? uint64_t(info.st_size) : 0;
}

bool same_file(const Path& a, const Path& b) {
  struct stat first, second;
  return inspect(a, first) && inspect(b, second) && first.st_ino == second.st_ino &&
         first.st_dev == second.st_dev;
}

void make_folders(const Path& path) {
  const DiskOperation waiting("creating", path);
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail_errno("cannot create folder", path, error.value());
}

void remove_file(const Path& path) {
  const DiskOperation waiting("removing", path);
  std::error_code error;
  std::filesystem::remove(path, error);
  if (error) fail_errno("cannot remove", path, error.value());
}

void remove_folder(const Path& path) {
  std::error_code error;
  std::vector<std::string> names;
  if (!is_link(path))
    names = names_in(path, error);  // an error: no folder, or another process removes it too
  for (const std::string& name : names) remove_folder(path / name);
  remove_file(path);
}

std::vector<std::string> list_folder(const Path& path) {
  std::error_code error;
  std::vector<std::string> names = names_in(path, error);
  if (error) fail_errno("cannot list folder", path, error.value());
  std::ranges::sort(names);
  return names;
}

uint64_t free_space(const Path& path) {
  const DiskOperation waiting("inspecting", path);
  struct statvfs info;
  if (file_system().statvfs(path.c_str(), &info) != 0) fail_errno("cannot inspect", path);
  return uint64_t(info.f_bavail) * info.f_frsize;
}

void sync_folder(const Path& path) {
  const Path folder = path.empty() ? Path(".") : path;
  const int fd = open_or_fail(folder, O_RDONLY | O_DIRECTORY, "cannot open folder");
  const DiskOperation waiting("syncing", folder);
  const int result = file_system().fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some network file systems cannot sync a folder and say EINVAL; there is nothing more to do there.
  if (result != 0 && error != EINVAL) fail_errno("cannot sync folder", folder, error);
}

}  // namespace zeno
