// MPI's own collectives on fp32, to compare with. Valid between make_mpi_world and finish().
#pragma once

#include <cstdint>

namespace zeno::bench {

// The better of MPI_Reduce_scatter and MPI_Reduce_scatter_block is taken by the caller.
void mpi_reduce_scatter(const float* send, float* recv, int64_t count, int ranks);
void mpi_reduce_scatter_block(const float* send, float* recv, int64_t count);
void mpi_all_gather(const float* send, float* recv, int64_t count);
// Each rank's part lies at its place in `recv`.
void mpi_all_gather_in_place(float* recv, int64_t count);
void mpi_all_reduce(const float* send, float* recv, int64_t count);

}  // namespace zeno::bench
