// INGOT_HOST_DEVICE marks functions that host code and kernels both call.
#pragma once

#ifdef __CUDACC__
#define INGOT_HOST_DEVICE __host__ __device__
#else
#define INGOT_HOST_DEVICE
#endif
