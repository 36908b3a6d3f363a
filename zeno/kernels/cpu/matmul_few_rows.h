// Products of a few rows with a large matrix (generation: one row per sequence). They read B once and do
// little else, so they read B from memory without packing. Same sums in the same order as every other matmul.
#pragma once

#include "zeno/base/workers.h"
#include "zeno/kernels/matmul.h"

namespace zeno::cpu {

// Whether run_few_rows handles the matmul: up to 8 rows of A, B stored [N, K].
bool is_few_rows(const Matmul& op);
// Runs on the threads of a stream, whose scratch must be there.
void run_few_rows(Workers& workers, const Matmul& op);

}  // namespace zeno::cpu
