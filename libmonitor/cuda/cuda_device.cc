#include "cuda/cuda_device.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/status_macros.h"
#include "base/strings.h"
#include "cuda/launch.h"
#include "cuda/lost_context.h"

namespace ptqwatch::internal {
namespace {

// The size that cuBLAS's documentation recommends for Hopper.
constexpr size_t kBlasWorkspaceBytes = size_t{32} << 20;

// Clears our own call's error from the thread's last-error state. Keeps other code's errors there.
void TakeError(cudaError_t error) {
  if (cudaPeekAtLastError() == error) static_cast<void>(cudaGetLastError());
}

// A library's error may be the first sign of a lost context. The library has its own runtime; ours
// learns of the error by querying the stream.
absl::Status LibraryStatus(cudaStream_t stream, bool out_of_memory, int code,
                           std::string_view what) {
  const cudaError_t state = cudaStreamQuery(stream);
  if (state == cudaErrorNotReady) {
    TakeError(state);
  } else {
    PTQWATCH_RETURN_IF_ERROR(CudaStatus(state, what));
  }
  const std::string message = StrCat(what, " failed with status ", code);
  return out_of_memory ? absl::ResourceExhaustedError(message) : absl::InternalError(message);
}

absl::Status BlasStatus(cublasStatus_t status, cudaStream_t stream, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return LibraryStatus(stream, status == CUBLAS_STATUS_ALLOC_FAILED, static_cast<int>(status),
                       what);
}

struct Types {
  cudaDataType_t input;
  cudaDataType_t output;
  cublasComputeType_t compute;
};

Types TypesOf(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::kFloat32:
      break;
    case Arithmetic::kFloat64:
      return {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F};
    case Arithmetic::kBFloat16:
      return {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case Arithmetic::kFloat16:
      return {CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
  }
  return {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
}

template <size_t... kIndex>
cudaError_t PrepareAll(std::index_sequence<kIndex...>) {
  cudaError_t result = cudaSuccess;
  const auto prepare = [&](cudaError_t one) {
    if (result == cudaSuccess) result = one;
  };
  (prepare(Prepare<std::variant_alternative_t<kIndex, Kernel>>()), ...);
  return result;
}

template <size_t... kIndex>
constexpr int MostSharedBytes(std::index_sequence<kIndex...>) {
  return static_cast<int>(
      std::max({sizeof(typename std::variant_alternative_t<kIndex, Kernel>::Shared)...}));
}

absl::Status CheckSharedMemory() {
  constexpr int kNeeded = MostSharedBytes(std::make_index_sequence<std::variant_size_v<Kernel>>());
  int device = 0;
  int most = 0;
  PTQWATCH_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "looking for a GPU"));
  PTQWATCH_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                 "asking for shared memory"));
  if (most >= kNeeded) return absl::OkStatus();
  return absl::UnavailableError(StrCat(
      "the kernels need ", kNeeded, " bytes of shared memory, the GPU has ", most, " per block"));
}

}  // namespace

bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorCudartUnloading:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
#if CUDART_VERSION >= 12080
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
#endif
      return true;
    default:
      return false;
  }
}

absl::Status CudaStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  TakeError(error);
  const std::string message =
      StrCat(what, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error));
  if (IsSticky(error)) return LostContextError(message);
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(message);
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidResourceHandle:
      return absl::InvalidArgumentError(message);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorInitializationError:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorStubLibrary:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::StatusOr<bool> HasGpu() {
  // Without a driver the version is 0. An outdated driver has a version.
  int driver = 0;
  PTQWATCH_RETURN_IF_ERROR(CudaStatus(cudaDriverGetVersion(&driver), "looking for a driver"));
  if (driver == 0) return false;
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  const absl::Status status = CudaStatus(error, "looking for a GPU");
  if (status.ok()) return devices > 0;
  if (error == cudaErrorNoDevice) return false;
  return IsLostContext(status) ? status : absl::UnavailableError(status.message());
}

CudaDevice::Resources& CudaDevice::Resources::operator=(Resources&& other) noexcept {
  std::swap(stream, other.stream);
  std::swap(arena, other.arena);
  std::swap(workspace, other.workspace);
  std::swap(blas, other.blas);
  return *this;
}

CudaDevice::Resources::~Resources() {
  if (stream == nullptr || IsSticky(cudaStreamSynchronize(stream))) return;
  if (blas != nullptr) cublasDestroy(blas);
  cudaFree(workspace);
  cudaFree(arena);
}

CudaDevice::CudaDevice(Resources resources, void* memory, int64_t bytes)
    : ComputeDevice(memory, bytes), resources_(std::move(resources)) {}

CudaDevice::~CudaDevice() = default;

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(const CudaDeviceOptions& options) {
  PTQWATCH_ASSIGN_OR_RETURN(const bool any, HasGpu());
  if (!any) return absl::UnavailableError("there is no GPU");
  if (options.stream == nullptr || options.stream == cudaStreamLegacy ||
      options.stream == cudaStreamPerThread) {
    return absl::InvalidArgumentError("CudaDeviceOptions.stream is a default stream");
  }
  if (options.bytes < 0) {
    return absl::InvalidArgumentError(StrCat("CudaDeviceOptions.bytes is ", options.bytes));
  }
  if (reinterpret_cast<uintptr_t>(options.memory) % Arena::kAlignment != 0) {
    return absl::InvalidArgumentError(
        StrCat("CudaDeviceOptions.memory is not aligned to ", Arena::kAlignment, " bytes"));
  }
  PTQWATCH_RETURN_IF_ERROR(CheckSharedMemory());
  Resources resources;
  resources.stream = options.stream;
  void* memory = options.memory;
  if (memory == nullptr && options.bytes > 0) {
    PTQWATCH_RETURN_IF_ERROR(
        CudaStatus(cudaMalloc(&resources.arena, static_cast<size_t>(options.bytes)),
                   StrCat("allocating ", options.bytes, " bytes")));
    memory = resources.arena;
  }
  PTQWATCH_RETURN_IF_ERROR(MakeHandles(resources));
  std::unique_ptr<CudaDevice> device(new CudaDevice(std::move(resources), memory, options.bytes));
  PTQWATCH_RETURN_IF_ERROR(device->Warm());
  return device;
}

absl::Status CudaDevice::MakeHandles(Resources& resources) {
  PTQWATCH_RETURN_IF_ERROR(CudaStatus(cudaMalloc(&resources.workspace, kBlasWorkspaceBytes),
                                      "allocating cuBLAS's workspace"));
  PTQWATCH_RETURN_IF_ERROR(
      BlasStatus(cublasCreate(&resources.blas), resources.stream, "cublasCreate"));
  // cublasSetStream resets the workspace.
  PTQWATCH_RETURN_IF_ERROR(BlasStatus(cublasSetStream(resources.blas, resources.stream),
                                      resources.stream, "cublasSetStream"));
  PTQWATCH_RETURN_IF_ERROR(
      BlasStatus(cublasSetWorkspace(resources.blas, resources.workspace, kBlasWorkspaceBytes),
                 resources.stream, "cublasSetWorkspace"));
  // Keeps the parts of a split sum in float32.
  return BlasStatus(
      cublasSetMathMode(resources.blas, static_cast<cublasMath_t>(
                                            CUBLAS_DEFAULT_MATH |
                                            CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
      resources.stream, "cublasSetMathMode");
}

// Loads all kernels and makes the libraries allocate their memory before the first real call.
absl::Status CudaDevice::Warm() {
  PTQWATCH_RETURN_IF_ERROR(CudaStatus(
      PrepareAll(std::make_index_sequence<std::variant_size_v<Kernel>>()), "loading kernels"));
  constexpr int64_t kSize = 64;
  constexpr int64_t kBytes = kSize * kSize * 8;
  ArenaScope scope(arena());
  const absl::StatusOr<void*> matrix = arena().Take(kBytes, "trying the device");
  const absl::StatusOr<void*> product = arena().Take(kBytes, "trying the device");
  if (!matrix.ok() || !product.ok()) return Read({});  // a small arena, as in tests
  PTQWATCH_RETURN_IF_ERROR(Zero(*matrix, kBytes));
  for (const Arithmetic arithmetic :
       {Arithmetic::kFloat32, Arithmetic::kFloat64, Arithmetic::kBFloat16, Arithmetic::kFloat16}) {
    PTQWATCH_RETURN_IF_ERROR(Multiply({.arithmetic = arithmetic,
                                       .transpose_b = true,
                                       .m = kSize,
                                       .n = kSize,
                                       .k = kSize,
                                       .a = *matrix,
                                       .lda = kSize,
                                       .b = *matrix,
                                       .ldb = kSize,
                                       .c = *product,
                                       .ldc = kSize}));
  }
  return Read({});
}

absl::Status CudaDevice::Run(const Kernel& kernel) {
  return std::visit(
      [&](const auto& one) {
        return CudaStatus(Launch(one, resources_.stream), "launching a kernel");
      },
      kernel);
}

absl::Status CudaDevice::Multiply(const MatrixProduct& p) {
  const Types types = TypesOf(p.arithmetic);
  const float alpha32 = static_cast<float>(p.alpha);
  const float beta32 = static_cast<float>(p.beta);
  const bool wide = types.compute == CUBLAS_COMPUTE_64F;
  const void* alpha = wide ? static_cast<const void*>(&p.alpha) : &alpha32;
  const void* beta = wide ? static_cast<const void*>(&p.beta) : &beta32;
  return BlasStatus(
      cublasGemmStridedBatchedEx_64(resources_.blas, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                                    p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, p.m, p.n, p.k, alpha,
                                    p.a, types.input, p.lda, p.stride_a, p.b, types.input, p.ldb,
                                    p.stride_b, beta, p.c, types.output, p.ldc, p.stride_c, p.batch,
                                    types.compute, CUBLAS_GEMM_DEFAULT),
      resources_.stream, "cublasGemmStridedBatchedEx");
}

absl::Status CudaDevice::Zero(void* memory, int64_t bytes) {
  return CudaStatus(cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), resources_.stream),
                    "clearing memory");
}

absl::Status CudaDevice::Upload(void* to, const void* host, int64_t bytes) {
  PTQWATCH_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(to, host, static_cast<size_t>(bytes),
                                                      cudaMemcpyHostToDevice, resources_.stream),
                                      "copying to the device"));
  return Read({});
}

absl::Status CudaDevice::Read(std::span<const HostCopy> copies) {
  for (const HostCopy& copy : copies) {
    PTQWATCH_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(copy.host, copy.from, static_cast<size_t>(copy.bytes),
                                   cudaMemcpyDeviceToHost, resources_.stream),
                   "copying from the device"));
  }
  return CudaStatus(cudaStreamSynchronize(resources_.stream), "waiting for the device");
}

}  // namespace ptqwatch::internal
