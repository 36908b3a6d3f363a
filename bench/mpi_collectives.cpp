#include "mpi_collectives.h"

#include <mpi.h>

#include <vector>

namespace zeno::bench {

void mpi_reduce_scatter(const float* send, float* recv, int64_t count, int ranks) {
  const std::vector<int> counts(static_cast<size_t>(ranks), static_cast<int>(count));
  MPI_Reduce_scatter(send, recv, counts.data(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

void mpi_reduce_scatter_block(const float* send, float* recv, int64_t count) {
  MPI_Reduce_scatter_block(send, recv, int(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

void mpi_all_gather(const float* send, float* recv, int64_t count) {
  MPI_Allgather(send, int(count), MPI_FLOAT, recv, int(count), MPI_FLOAT, MPI_COMM_WORLD);
}

void mpi_all_gather_in_place(float* recv, int64_t count) {
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, recv, int(count), MPI_FLOAT, MPI_COMM_WORLD);
}

void mpi_all_reduce(const float* send, float* recv, int64_t count) {
  MPI_Allreduce(send, recv, int(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

}  // namespace zeno::bench
