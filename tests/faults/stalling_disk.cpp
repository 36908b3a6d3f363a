// A disk for tests that can stop answering or become read-only: a FUSE file system that shows the files of
// another folder. After SIGUSR1 every call on it hangs, as with a dead server: the kernel still lets
// processes be killed in them. After SIGUSR2 one call hangs in a way in which they cannot, as with a dead
// drive. After SIGHUP calls that change something fail with EROFS, also on files that are open, as when a
// system has found errors on a drive. After SIGCONT all is well again; when the process is killed, calls
// fail.
//   stalling_disk SOURCE MOUNT
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <fuse3/fuse_lowlevel.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <string>

namespace {

std::string source;

volatile sig_atomic_t wish = 0, read_only = 0;

std::string below(const char* path) { return source + path; }
int outcome(int result) { return result < 0 ? -errno : 0; }
// Of a call that changes something.
template <class Call>
int change(const Call& call) {
  return read_only ? -EROFS : outcome(call());
}

int get_attributes(const char* path, struct stat* info, fuse_file_info*) {
  return outcome(::lstat(below(path).c_str(), info));
}
int list(const char* path, void* buffer, fuse_fill_dir_t fill, off_t, fuse_file_info*, fuse_readdir_flags) {
  DIR* folder = ::opendir(below(path).c_str());
  if (folder == nullptr) return -errno;
  while (const dirent* entry = ::readdir(folder))
    fill(buffer, entry->d_name, nullptr, 0, fuse_fill_dir_flags(0));
  ::closedir(folder);
  return 0;
}
int take(int fd, fuse_file_info* file) {
  if (fd < 0) return -errno;
  file->fh = uint64_t(fd);
  return 0;
}
int open_file(const char* path, fuse_file_info* file) {
  if (read_only && (file->flags & (O_ACCMODE | O_TRUNC)) != O_RDONLY) return -EROFS;
  return take(::open(below(path).c_str(), file->flags & ~O_DIRECT), file);
}
int create_file(const char* path, mode_t mode, fuse_file_info* file) {
  if (read_only) return -EROFS;
  return take(::open(below(path).c_str(), (file->flags & ~O_DIRECT) | O_CREAT, mode), file);
}
int read_file(const char*, char* data, size_t bytes, off_t offset, fuse_file_info* file) {
  const ssize_t n = ::pread(int(file->fh), data, bytes, offset);
  return n < 0 ? -errno : int(n);
}
int write_file(const char*, const char* data, size_t bytes, off_t offset, fuse_file_info* file) {
  if (read_only) return -EROFS;
  const ssize_t n = ::pwrite(int(file->fh), data, bytes, offset);
  return n < 0 ? -errno : int(n);
}
// When a process closes it, also by its end. The kernel asks, and waits, for as long as there is an answer.
int flush(const char*, fuse_file_info* file) { return outcome(::close(::dup(int(file->fh)))); }
int release(const char*, fuse_file_info* file) { return outcome(::close(int(file->fh))); }
int sync_file(const char*, int, fuse_file_info* file) { return outcome(::fsync(int(file->fh))); }
int resize(const char* path, off_t bytes, fuse_file_info*) {
  return change([&] { return ::truncate(below(path).c_str(), bytes); });
}
int remove_file(const char* path) {
  return change([&] { return ::unlink(below(path).c_str()); });
}
int make_folder(const char* path, mode_t mode) {
  return change([&] { return ::mkdir(below(path).c_str(), mode); });
}
int remove_folder(const char* path) {
  return change([&] { return ::rmdir(below(path).c_str()); });
}
int rename_file(const char* from, const char* to, unsigned flags) {
  if (flags != 0) return -EINVAL;
  return change([&] { return ::rename(below(from).c_str(), below(to).c_str()); });
}
int tell_room(const char* path, struct statvfs* info) {
  return outcome(::statvfs(below(path).c_str(), info));
}

void wait_for_wishes() {
  struct sigaction action {};
  sigfillset(&action.sa_mask);  // one at a time: of two that come at once, SIGCONT has the last word
  action.sa_handler = [](int signal) { wish = signal; };  // and the read of the next call is interrupted
  sigaction(SIGUSR1, &action, nullptr);
  sigaction(SIGUSR2, &action, nullptr);
  action.sa_handler = [](int signal) { read_only = signal == SIGHUP; };
  sigaction(SIGHUP, &action, nullptr);
  sigaction(SIGCONT, &action, nullptr);
}

void stop_if(int wished) {
  if (wish != wished) return;
  wish = 0;
  raise(SIGSTOP);
}

void serve(fuse_session* session) {
  fuse_buf call{};
  while (!fuse_session_exited(session)) {
    stop_if(SIGUSR1);
    const int bytes = fuse_session_receive_buf(session, &call);
    if (bytes == -EINTR) continue;
    if (bytes <= 0) break;
    stop_if(SIGUSR2);
    fuse_session_process_buf(session, &call);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: stalling_disk SOURCE MOUNT\n");
    return 2;
  }
  source = argv[1];
  fuse_operations operations{};
  operations.getattr = get_attributes;
  operations.readdir = list;
  operations.open = open_file;
  operations.create = create_file;
  operations.read = read_file;
  operations.write = write_file;
  operations.flush = flush;
  operations.release = release;
  operations.fsync = sync_file;
  operations.truncate = resize;
  operations.unlink = remove_file;
  operations.mkdir = make_folder;
  operations.rmdir = remove_folder;
  operations.rename = rename_file;
  operations.statfs = tell_room;
  char* name[] = {argv[0], nullptr};
  fuse_args arguments = FUSE_ARGS_INIT(1, name);
  fuse* disk = fuse_new(&arguments, &operations, sizeof operations, nullptr);
  if (disk == nullptr || fuse_mount(disk, argv[2]) != 0) return 1;
  wait_for_wishes();
  serve(fuse_get_session(disk));
  return 0;
}
