#include "mpi_collectives.h"
#include "zeno/base/error.h"

namespace zeno::bench {

void mpi_reduce_scatter(const float*, float*, int64_t, int) {
  fail(ErrorKind::usage, "[bench] built without MPI");
}
void mpi_reduce_scatter_block(const float*, float*, int64_t) {
  fail(ErrorKind::usage, "[bench] built without MPI");
}
void mpi_all_gather(const float*, float*, int64_t) { fail(ErrorKind::usage, "[bench] built without MPI"); }
void mpi_all_gather_in_place(float*, int64_t) { fail(ErrorKind::usage, "[bench] built without MPI"); }
void mpi_all_reduce(const float*, float*, int64_t) { fail(ErrorKind::usage, "[bench] built without MPI"); }

}  // namespace zeno::bench
