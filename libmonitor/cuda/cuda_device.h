#ifndef PTQWATCH_CUDA_CUDA_DEVICE_H_
#define PTQWATCH_CUDA_CUDA_DEVICE_H_

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cusolverDn.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/compute_device.h"

/// For builds with CUDA. The binary also runs on machines without a GPU, where Create fails.

namespace ptqwatch::internal {

struct CudaDeviceOptions {
  /// Where all work goes. Not a default stream, which others' work would wait for.
  cudaStream_t stream = nullptr;
  /// Of the arena.
  int64_t bytes = 0;
  /// The arena's memory, on the current device, aligned to Arena::kAlignment; the caller keeps it.
  /// Where null, it is allocated.
  void* memory = nullptr;
};

/// A GPU: the current device of the thread that makes it, which must be the current one in every
/// call. It has handles of cuBLAS and cuSOLVER of its own and a workspace for cuBLAS, about 32 MiB
/// beside the arena. All is allocated, and all kernels of ours are loaded, by Create, which waits
/// for the device; later calls allocate nothing. cuBLAS and cuSOLVER may still load kernels for
/// shapes that they have not seen: quantize a layer of each shape once where that must not happen
/// later.
///
/// No cudaStreamCaptureMode is set here: a thread beside one that captures a graph has to.
class CudaDevice final : public ComputeDevice {
 public:
  /// Errors: Unavailable without a usable GPU, InvalidArgument for a default stream or memory that
  /// is not aligned, ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(const CudaDeviceOptions& options);
  /// Waits for the stream and, as cublasDestroy and cudaFree do, for all work on the device,
  /// others' too. Leaks everything where the context is lost or the driver is gone already.
  ~CudaDevice() override;

  absl::Status Run(const Kernel& kernel) override;
  absl::Status Multiply(const MatrixProduct& product) override;
  absl::Status Factorize(double* matrix, int64_t size, int32_t* info) override;
  absl::StatusOr<int64_t> FactorizeBytes(int64_t size) override;
  absl::Status Zero(void* memory, int64_t bytes) override;
  absl::Status Upload(void* to, const void* host, int64_t bytes) override;
  absl::Status Read(std::span<const HostCopy> copies) override;

 private:
  // What must be given back, in reverse order.
  struct Resources {
    cudaStream_t stream = nullptr;
    void* arena = nullptr;  // null where it is the caller's
    void* workspace = nullptr;
    cublasHandle_t blas = nullptr;
    cusolverDnHandle_t solver = nullptr;

    Resources() = default;
    Resources(Resources&& other) noexcept { *this = std::move(other); }
    Resources& operator=(Resources&& other) noexcept;
    ~Resources();
  };

  CudaDevice(Resources resources, void* memory, int64_t bytes);
  static absl::Status MakeHandles(Resources& resources);
  absl::Status Warm();

  Resources resources_;
  std::map<int64_t, int64_t> factorize_bytes_;
};

/// Whether the machine has a GPU: false where it has no driver, too. Errors: Unavailable where
/// there may be one that cannot be used, as with a driver that is too old.
absl::StatusOr<bool> HasGpu();

/// Whether the error means that the context is lost, for everybody in this process.
bool IsSticky(cudaError_t error);
/// OkStatus, or an error that names `what`: LostContextError, ResourceExhausted, InvalidArgument,
/// Unavailable or Internal. To be called right after the call that failed: takes its error from the
/// thread's last-error state, and leaves another's there.
absl::Status CudaStatus(cudaError_t error, std::string_view what);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_CUDA_DEVICE_H_
