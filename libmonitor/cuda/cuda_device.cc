#include "cuda/cuda_device.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cuda/launch.h"
#include "cuda/lost_context.h"

namespace ptqwatch::internal {
namespace {

// Copies to and from the host go through a page-locked buffer of this size. Others would make the
// driver wait for them, spinning on a core.
constexpr int64_t kBufferBytes = int64_t{1} << 20;

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

// Handles that no device borrows. Leaked, because the driver may be gone before the process ends.
class HandlePool {
 public:
  static HandlePool& Get() {
    static HandlePool* pool = new HandlePool;
    return *pool;
  }
  // Some for this device, if possible with libraries as requested, else empty ones.
  std::unique_ptr<CudaDevice::Handles> Take(int device, bool libraries) {
    MutexLock lock(mutex_);
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if ((*it)->device != device) continue;
      if (best == free_.end() || ((*it)->blas != nullptr) == libraries) best = it;
    }
    if (best == free_.end()) {
      return std::make_unique<CudaDevice::Handles>(CudaDevice::Handles{.device = device});
    }
    std::unique_ptr<CudaDevice::Handles> taken = std::move(*best);
    free_.erase(best);
    return taken;
  }
  void GiveBack(std::unique_ptr<CudaDevice::Handles> handles) {
    MutexLock lock(mutex_);
    free_.push_back(std::move(handles));
  }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<CudaDevice::Handles>> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorCudartUnloading:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
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
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
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

CudaDevice::~CudaDevice() {
  // Queued work uses the memory and the workspace.
  if (handles_ != nullptr && handles_->done != nullptr && !Wait().ok()) {
    static_cast<void>(handles_.release());
    return;
  }
  if (owned_ != nullptr) cudaFree(owned_);
  if (handles_ != nullptr) HandlePool::Get().GiveBack(std::move(handles_));
}

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
  const int64_t workspace = options.libraries && options.bytes > 0 ? kWorkspaceBytes : 0;
  if (options.bytes < workspace) {
    return absl::InvalidArgumentError(StrCat("CudaDeviceOptions.bytes is ", options.bytes,
                                             ", cuBLAS's workspace alone takes ", workspace));
  }
  PTQWATCH_RETURN_IF_ERROR(CheckSharedMemory());
  char* memory = static_cast<char*>(options.memory);
  void* owned = nullptr;
  if (memory == nullptr && options.bytes > 0) {
    PTQWATCH_RETURN_IF_ERROR(CudaStatus(cudaMalloc(&owned, static_cast<size_t>(options.bytes)),
                                        StrCat("allocating ", options.bytes, " bytes")));
    memory = static_cast<char*>(owned);
  }
  std::unique_ptr<CudaDevice> device(
      new CudaDevice(options.stream, memory + workspace, options.bytes - workspace));
  device->owned_ = owned;
  PTQWATCH_RETURN_IF_ERROR(device->Borrow(options.libraries, workspace > 0 ? memory : nullptr));
  PTQWATCH_RETURN_IF_ERROR(CudaStatus(
      PrepareAll(std::make_index_sequence<std::variant_size_v<Kernel>>()), "loading kernels"));
  return device;
}

// Makes the handles that are missing. What an earlier failure has left unfinished is finished here.
absl::Status CudaDevice::Borrow(bool libraries, void* workspace) {
  int device = 0;
  PTQWATCH_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "looking for a GPU"));
  handles_ = HandlePool::Get().Take(device, libraries);
  Handles& handles = *handles_;
  if (handles.done == nullptr) {
    PTQWATCH_RETURN_IF_ERROR(CudaStatus(
        cudaEventCreateWithFlags(&handles.done, cudaEventDisableTiming | cudaEventBlockingSync),
        "making an event"));
  }
  if (handles.buffer == nullptr) {
    PTQWATCH_RETURN_IF_ERROR(CudaStatus(cudaHostAlloc(reinterpret_cast<void**>(&handles.buffer),
                                                      kBufferBytes, cudaHostAllocDefault),
                                        "page-locking memory"));
  }
  if (!libraries) return absl::OkStatus();
  const auto blas = [&](cublasStatus_t status) {
    return BlasStatus(status, stream_, "preparing cuBLAS");
  };
  if (handles.blas == nullptr) PTQWATCH_RETURN_IF_ERROR(blas(cublasCreate(&handles.blas)));
  // cublasSetStream resets the workspace.
  PTQWATCH_RETURN_IF_ERROR(blas(cublasSetStream(handles.blas, stream_)));
  if (workspace != nullptr) {
    PTQWATCH_RETURN_IF_ERROR(blas(cublasSetWorkspace(handles.blas, workspace, kWorkspaceBytes)));
  }
  // Keeps the parts of a split sum in float32.
  constexpr int kMode = CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
  return blas(cublasSetMathMode(handles.blas, static_cast<cublasMath_t>(kMode)));
}

absl::Status CudaDevice::Run(const Kernel& kernel) {
  return std::visit(
      [&](const auto& one) { return CudaStatus(Launch(one, stream_), "launching a kernel"); },
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
      cublasGemmStridedBatchedEx_64(handles_->blas, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                                    p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, p.m, p.n, p.k, alpha,
                                    p.a, types.input, p.lda, p.stride_a, p.b, types.input, p.ldb,
                                    p.stride_b, beta, p.c, types.output, p.ldc, p.stride_c, p.batch,
                                    types.compute, CUBLAS_GEMM_DEFAULT),
      stream_, "cublasGemmStridedBatchedEx");
}

absl::Status CudaDevice::Zero(void* memory, int64_t bytes) {
  return CudaStatus(cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), stream_),
                    "clearing memory");
}

absl::Status CudaDevice::Upload(void* to, const void* host, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    const int64_t piece = std::min(bytes - done, kBufferBytes);
    std::memcpy(handles_->buffer, static_cast<const char*>(host) + done,
                static_cast<size_t>(piece));
    PTQWATCH_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(static_cast<char*>(to) + done, handles_->buffer,
                                   static_cast<size_t>(piece), cudaMemcpyHostToDevice, stream_),
                   "copying to the device"));
    PTQWATCH_RETURN_IF_ERROR(Wait());
    done += piece;
  }
  return absl::OkStatus();
}

absl::Status CudaDevice::Read(std::span<const HostCopy> copies) {
  std::vector<HostCopy> buffered;  // pieces on their way through the buffer
  int64_t used = 0;
  const auto empty_buffer = [&]() -> absl::Status {
    PTQWATCH_RETURN_IF_ERROR(Wait());
    for (const HostCopy& piece : buffered) {
      std::memcpy(piece.host, piece.from, static_cast<size_t>(piece.bytes));
    }
    buffered.clear();
    used = 0;
    return absl::OkStatus();
  };
  for (const HostCopy& copy : copies) {
    for (int64_t done = 0; done < copy.bytes;) {
      if (used == kBufferBytes) PTQWATCH_RETURN_IF_ERROR(empty_buffer());
      const int64_t bytes = std::min(copy.bytes - done, kBufferBytes - used);
      char* const piece = handles_->buffer + used;
      PTQWATCH_RETURN_IF_ERROR(
          CudaStatus(cudaMemcpyAsync(piece, static_cast<const char*>(copy.from) + done,
                                     static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream_),
                     "copying from the device"));
      buffered.push_back(
          {.host = static_cast<char*>(copy.host) + done, .from = piece, .bytes = bytes});
      used += bytes;
      done += bytes;
    }
  }
  return empty_buffer();
}

// cudaStreamSynchronize would spin on a core.
absl::Status CudaDevice::Wait() {
  PTQWATCH_RETURN_IF_ERROR(
      CudaStatus(cudaEventRecord(handles_->done, stream_), "waiting for the device"));
  return CudaStatus(cudaEventSynchronize(handles_->done), "waiting for the device");
}

}  // namespace ptqwatch::internal
