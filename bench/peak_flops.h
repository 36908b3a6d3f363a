// The rate of independent fp32 multiply-adds in registers: the ceiling of every matrix product on this CPU.
#pragma once

namespace zeno {

// FLOP/s of the calling thread, best of a few short runs.
double measure_peak_flops();

}  // namespace zeno
