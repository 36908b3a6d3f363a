// What a device computes per second with the kernels of a training step. All calls block.
//
// A plan of time adds up an instruction's FLOPs at one rate, the bytes of its operands and results at another
// and the packing of operands at a third. So the time of bytes and packing is taken off before FLOPs are
// divided by seconds, and the sum is right again for shapes that move more or less than those measured.
#pragma once

#include "zeno/plan/machine/measure.h"

namespace zeno::plan {

struct ComputeRate {
  double flops = 0;  // FLOP/s excluding memory time and packing
  double whole = 0;  // FLOP/s with it, as seen on a clock
};

// Linears, forward and backward, called as layers call them: gradients are added up in fp32, fp8 is quantised
// right before its use.
enum class MatmulType { bits16, fp32, fp8 };
ComputeRate measure_matmul(Device device, MatmulType type, const MeasureSizes& sizes, double memory_rate,
                           double packing, double seconds);

// Elements per second that the CPU's products copy into panels: what linears of a few rows, whose weights no
// cache holds, take longer than their FLOPs at the rate of many rows and their bytes. 0: no longer.
double measure_packing(const MeasureSizes& sizes, double memory_rate, double seconds);

// Causal attention, forward and backward, in 16 bits. Counted is what the mask keeps: 4 for each pair of
// tokens and value of a head forward, 10 backward, where the scores are computed once more.
ComputeRate measure_attention(Device device, const MeasureSizes& sizes, double memory_rate, double seconds);

// Bytes per second of a copy within the device's memory, read plus written.
double measure_copy(Device device, const MeasureSizes& sizes, double seconds);

// Seconds of a kernel that has next to nothing to do, in a row of such.
double measure_launch(Device device, double seconds);

}  // namespace zeno::plan
