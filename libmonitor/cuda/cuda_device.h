#ifndef PTQWATCH_CUDA_CUDA_DEVICE_H_
#define PTQWATCH_CUDA_CUDA_DEVICE_H_

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/compute_device.h"

/// For builds with CUDA. The binary also runs on machines without a GPU; Create then fails.

namespace ptqwatch::internal {

struct CudaDeviceOptions {
  /// The stream of all work. Must not be a default stream, which synchronizes with others.
  cudaStream_t stream = nullptr;
  /// Bytes of memory: cuBLAS's workspace and the arena. 0: it can only run kernels on memory of its
  /// caller.
  int64_t bytes = 0;
  /// That memory, on the current device, aligned to Arena::kAlignment and owned by the caller. If
  /// null, it is allocated.
  void* memory = nullptr;
  /// False: Multiply is not called, and all memory is the arena's.
  bool libraries = true;
};

/// A GPU: the device that is current on the creating thread. It must also be current in every call.
///
/// Create allocates everything and loads our kernels; later calls allocate nothing. cuBLAS
/// loads kernels for shapes that are new to it, so use each shape once before it matters.
/// Waiting leaves the core to other threads.
///
/// The libraries' handles, an event and a page-locked buffer are lent from a pool, which keeps them
/// for the life of the process: destroying them would wait for all work on the device, and could
/// end a graph that another thread captures.
///
/// Does not set a cudaStreamCaptureMode. If another thread captures a graph, the caller must.
class CudaDevice final : public ComputeDevice {
 public:
  /// The bytes of cuBLAS's workspace, as its documentation recommends for Hopper.
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

  /// Errors: Unavailable without a usable GPU, InvalidArgument for a default stream, unaligned
  /// memory, or fewer bytes than the workspace takes, ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(const CudaDeviceOptions& options);
  /// Waits for the stream alone; if Create allocated the memory, freeing it waits for all work on
  /// the device. Leaks everything if the context is lost or the driver is already gone.
  ~CudaDevice() override;

  absl::Status Run(const Kernel& kernel) override;
  absl::Status Multiply(const MatrixProduct& product) override;
  absl::Status Zero(void* memory, int64_t bytes) override;
  absl::Status Upload(void* to, const void* host, int64_t bytes) override;
  absl::Status Read(std::span<const HostCopy> copies) override;

  /// A device borrows these from a pool.
  struct Handles {
    int device = 0;
    cudaEvent_t done = nullptr;
    char* buffer = nullptr;         // page-locked
    cublasHandle_t blas = nullptr;  // null if made without libraries
  };

 private:
  CudaDevice(cudaStream_t stream, void* memory, int64_t bytes)
      : ComputeDevice(memory, bytes), stream_(stream) {}
  absl::Status Borrow(bool libraries, void* workspace);
  absl::Status Wait();

  const cudaStream_t stream_;
  void* owned_ = nullptr;             // null if the caller owns the memory
  std::unique_ptr<Handles> handles_;  // null until Borrow
};

/// Returns whether the machine has a GPU; false without a driver. Returns Unavailable if there may
/// be a GPU that cannot be used, for example because the driver is too old.
absl::StatusOr<bool> HasGpu();

/// Returns whether the error means that the context is lost for the whole process.
bool IsSticky(cudaError_t error);
/// Converts the error to a status that names `what`: ok, LostContextError, ResourceExhausted,
/// InvalidArgument, Unavailable or Internal. Call it right after the failed call: it clears that
/// call's error from the thread's last-error state and keeps other errors there.
absl::Status CudaStatus(cudaError_t error, std::string_view what);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_CUDA_DEVICE_H_
