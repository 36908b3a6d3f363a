#include "zeno/base/cache_folder.h"

#include <pwd.h>
#include <unistd.h>

#include <array>

namespace zeno {

Path cache_folder() {
  passwd entry;
  std::array<char, 16384> text;
  passwd* account = nullptr;
  getpwuid_r(getuid(), &entry, text.data(), text.size(), &account);  // ranks that are threads ask at once
  return Path(account != nullptr ? account->pw_dir : "/tmp") / ".cache" / "zeno";
}

}  // namespace zeno
