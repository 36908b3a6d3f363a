#include "zeno/comm/joint_error.h"

#include <exception>
#include <vector>

#include "zeno/comm/failure.h"

namespace zeno::comm {

void fail_together(const World& world, int teller, ErrorKind kind, const std::string& text) {
  throw JointError(kind, text, world.rank() == teller);
}

void work_together(World& world, std::string_view what, const std::function<void()>& work) {
  std::string mine;  // the kind of a failure, then its text
  try {
    work();
  } catch (...) {
    const Ending ending = ending_of(std::current_exception());
    if (ending.kind == ErrorKind::peer) throw;  // the world has failed, so an exchange would not end
    mine = char('0' + int(ending.kind)) + ending.text;
  }
  const std::vector<std::string> all = world.exchange(mine, what);
  for (size_t r = 0; r < all.size(); ++r) {
    if (!all[r].empty()) fail_together(world, int(r), ErrorKind(all[r][0] - '0'), all[r].substr(1));
  }
}

}  // namespace zeno::comm
