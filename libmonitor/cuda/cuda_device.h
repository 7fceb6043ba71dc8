#ifndef PTQWATCH_CUDA_CUDA_DEVICE_H_
#define PTQWATCH_CUDA_CUDA_DEVICE_H_

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/compute_device.h"

/// For builds with CUDA. The binary also runs on machines without a GPU; Create then fails.

namespace ptqwatch::internal {

struct CudaDeviceOptions {
  /// The stream of all work. Must not be a default stream, which synchronizes with others.
  cudaStream_t stream = nullptr;
  /// The size of the arena.
  int64_t bytes = 0;
  /// The arena's memory, on the current device, aligned to Arena::kAlignment and owned by the
  /// caller. If null, it is allocated.
  void* memory = nullptr;
};

/// A GPU: the device that is current on the creating thread. It must also be current in every call.
/// Owns a handle of cuBLAS, and a workspace for it of about 32 MiB besides the arena. Create
/// allocates everything, loads our kernels and waits for the device; later calls allocate nothing.
/// cuBLAS may still load kernels for shapes that are new to it. To avoid that later, quantize a
/// layer of each shape once.
///
/// Does not set a cudaStreamCaptureMode. If another thread captures a graph, the caller must.
class CudaDevice final : public ComputeDevice {
 public:
  /// Errors: Unavailable without a usable GPU, InvalidArgument for a default stream or unaligned
  /// memory, ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(const CudaDeviceOptions& options);
  /// Waits for the stream and, through cublasDestroy and cudaFree, for all other work on the
  /// device. Leaks everything if the context is lost or the driver is already gone.
  ~CudaDevice() override;

  absl::Status Run(const Kernel& kernel) override;
  absl::Status Multiply(const MatrixProduct& product) override;
  absl::Status Zero(void* memory, int64_t bytes) override;
  absl::Status Upload(void* to, const void* host, int64_t bytes) override;
  absl::Status Read(std::span<const HostCopy> copies) override;

 private:
  // Resources to release, in reverse order.
  struct Resources {
    cudaStream_t stream = nullptr;
    void* arena = nullptr;  // null if the caller owns it
    void* workspace = nullptr;
    cublasHandle_t blas = nullptr;

    Resources() = default;
    Resources(Resources&& other) noexcept { *this = std::move(other); }
    Resources& operator=(Resources&& other) noexcept;
    ~Resources();
  };

  CudaDevice(Resources resources, void* memory, int64_t bytes);
  static absl::Status MakeHandles(Resources& resources);
  absl::Status Warm();

  Resources resources_;
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
