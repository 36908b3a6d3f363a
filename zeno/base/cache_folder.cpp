#include "zeno/base/cache_folder.h"

#include <pwd.h>
#include <unistd.h>

namespace zeno {

Path cache_folder() {
  const passwd* account = getpwuid(getuid());
  return Path(account != nullptr ? account->pw_dir : "/tmp") / ".cache" / "zeno";
}

}  // namespace zeno
