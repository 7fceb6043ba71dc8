#ifndef PTQWATCH_BASE_HOST_DEVICE_H_
#define PTQWATCH_BASE_HOST_DEVICE_H_

/// Marks a function that nvcc compiles for the host and for GPUs. Such functions call no others but
/// those so marked and the C mathematics library.
#ifdef __CUDACC__
#define PTQWATCH_HOST_DEVICE __host__ __device__
#else
#define PTQWATCH_HOST_DEVICE
#endif

#endif  // PTQWATCH_BASE_HOST_DEVICE_H_
