#ifndef PTQWATCH_CUDA_KERNELS_KERNEL_H_
#define PTQWATCH_CUDA_KERNELS_KERNEL_H_

#include <cstdint>

#include "base/host_device.h"

#ifdef __CUDA_ARCH__
#define PTQWATCH_UNROLL _Pragma("unroll")
#define PTQWATCH_NO_UNROLL _Pragma("unroll 1")
#else
#define PTQWATCH_UNROLL
#define PTQWATCH_NO_UNROLL
#endif

/// A kernel is a struct of arguments that can be copied to a device:
///
///   static constexpr int kThreads, kPhases;
///   struct Shared;  // belongs to a block of threads; at most 99 KiB
///   struct Local;   // belongs to a thread
///   int64_t Blocks() const;
///   template <int kPhase> void Run(Place at, Shared& shared, Local& local) const;
///
/// Run is called with every phase in turn, for every thread of every block. Between two phases the
/// threads of a block wait for each other. Blocks are independent. Neither Shared nor Local is
/// initialised. A kernel of many equal phases also has RunPhase(phase, at, shared, local), which
/// Run calls: the device then has one copy of the code. If the phases repeat every kSteps of them,
/// RunTurn<kStep>(turn, at, shared, local), for kTurns turns, saves registers. The body is compiled
/// for the device and for the host. Arithmetic that decides a code is IEEE float32 without
/// contraction; only explicit fmaf calls are fused.
namespace ptqwatch::internal {

/// The position of a thread.
struct Place {
  int64_t block;
  int thread;
};

struct Nothing {};

/// The maximum number of layers that go through a kernel together.
inline constexpr int kMaxBatch = 16;

/// One pointer per layer.
template <typename T>
struct PerLayer {
  T* at[kMaxBatch] = {};
};

/// One array per layer, `stride` apart; a stride of 0 means that all layers share one.
template <typename T>
struct Strided {
  T* first = nullptr;
  int64_t stride = 0;

  PTQWATCH_HOST_DEVICE T* at(int64_t layer) const { return first + layer * stride; }
};

PTQWATCH_HOST_DEVICE constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
PTQWATCH_HOST_DEVICE constexpr int64_t AtMost(int64_t a, int64_t b) { return a < b ? a : b; }

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_KERNEL_H_
