// A terminal of a test's own, so that drawings can be read back.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <string>

namespace zeno::test {

class Terminal {
 public:
  explicit Terminal(int columns) : master_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    if (master_ < 0 || ::grantpt(master_) != 0 || ::unlockpt(master_) != 0) return;
    slave_ = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    termios mode{};
    ::tcgetattr(slave_, &mode);
    ::cfmakeraw(&mode);
    ::tcsetattr(slave_, TCSANOW, &mode);
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    ::ioctl(slave_, TIOCSWINSZ, &size);
    ::fcntl(master_, F_SETFL, O_NONBLOCK);
  }
  ~Terminal() {
    ::close(slave_);
    ::close(master_);
  }
  int fd() const { return slave_; }
  std::string read() const {
    // The kernel hands bytes on at its leisure: reads until nothing has come for a while.
    std::string text;
    char buffer[4096];
    pollfd ready{master_, POLLIN, 0};
    while (::poll(&ready, 1, 300) > 0) {
      const ssize_t n = ::read(master_, buffer, sizeof(buffer));
      if (n <= 0) break;
      text.append(buffer, size_t(n));
    }
    return text;
  }

 private:
  int master_, slave_ = -1;
};

}  // namespace zeno::test
