// Marks a function that both the host and the GPU run, so that one definition serves both.
#pragma once

#ifdef __CUDACC__
#define ZENO_HOST_DEVICE __host__ __device__
#else
#define ZENO_HOST_DEVICE
#endif
