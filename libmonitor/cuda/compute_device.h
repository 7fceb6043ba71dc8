#ifndef PTQWATCH_CUDA_COMPUTE_DEVICE_H_
#define PTQWATCH_CUDA_COMPUTE_DEVICE_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "cuda/arena.h"
#include "cuda/kernels/all_kernels.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// The types of a matrix product's inputs and sums.
enum class Arithmetic {
  kFloat32,   ///< float32 throughout, never with reduced-precision inputs
  kFloat64,   ///< float64 throughout
  kBFloat16,  ///< bfloat16 inputs, float32 sums and result
  kFloat16,   ///< float16 inputs, float32 sums and result
};

/// C = alpha op(A) op(B) + beta C, column-major, for each of `batch` matrices that are `stride`
/// numbers apart. op(A) is [m, k] and op(B) is [k, n].
struct MatrixProduct {
  Arithmetic arithmetic = Arithmetic::kFloat32;
  bool transpose_a = false;
  bool transpose_b = false;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  double alpha = 1;  ///< 1 or -1
  const void* a = nullptr;
  int64_t lda = 0;
  int64_t stride_a = 0;
  const void* b = nullptr;
  int64_t ldb = 0;
  int64_t stride_b = 0;
  double beta = 0;  ///< 0 or 1; with 0, C is not read
  void* c = nullptr;
  int64_t ldc = 0;
  int64_t stride_c = 0;
  int64_t batch = 1;
};

/// A piece of a device's memory to copy to the host.
struct HostCopy {
  void* host = nullptr;
  const void* from = nullptr;
  int64_t bytes = 0;
};

/// A device with one queue of work and one arena of memory. All calls except Read and Upload queue
/// their work, which runs in order; they never wait for the device and never allocate. Pointers are
/// device pointers unless named host. Not thread-safe.
///
/// Errors: LostContextError (lost_context.h) if the device is unusable, otherwise
/// ResourceExhausted, InvalidArgument or Internal.
class ComputeDevice {
 public:
  ComputeDevice(void* memory, int64_t bytes) : arena_(memory, bytes) {}
  virtual ~ComputeDevice() = default;
  ComputeDevice(const ComputeDevice&) = delete;
  ComputeDevice& operator=(const ComputeDevice&) = delete;

  Arena& arena() { return arena_; }

  virtual absl::Status Run(const Kernel& kernel) = 0;
  virtual absl::Status Multiply(const MatrixProduct& product) = 0;

  virtual absl::Status Zero(void* memory, int64_t bytes) = 0;
  /// Copies to the device. `host` may be reused after the call. May wait for the device, so it is
  /// not used for each layer.
  virtual absl::Status Upload(void* to, const void* host, int64_t bytes) = 0;
  /// Waits until the queue is empty, then copies these pieces to the host.
  virtual absl::Status Read(std::span<const HostCopy> copies) = 0;
  absl::Status Synchronize() { return Read({}); }

 private:
  Arena arena_;
};

/// Queues work on a device and checks the context before each piece.
class Queue {
 public:
  Queue(ComputeDevice& device, const ExecutionContext& context)
      : device_(device), context_(context) {}

  Arena& arena() { return device_.arena(); }

  absl::Status Run(const Kernel& kernel) {
    PTQWATCH_RETURN_IF_ERROR(context_.Checkpoint());
    return device_.Run(kernel);
  }
  absl::Status Multiply(const MatrixProduct& product) {
    PTQWATCH_RETURN_IF_ERROR(context_.Checkpoint());
    return device_.Multiply(product);
  }

 private:
  ComputeDevice& device_;
  const ExecutionContext& context_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_COMPUTE_DEVICE_H_
