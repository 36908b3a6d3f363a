// This build has no MPI: ranks are threads.
#include "zeno/base/error.h"
#include "zeno/comm/world.h"

namespace zeno::comm {

bool mpi_available() { return false; }

std::unique_ptr<World> make_mpi_world(const WorldOptions&) {
  fail(ErrorKind::usage,
       "[comm] this program was built without MPI; install libopenmpi-dev and build again, or use ranks as "
       "threads");
}

}  // namespace zeno::comm
