// Compiled into builds with CUDA. The binary also runs on machines without a GPU.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/_foreach_copy.h"
#include "absl/cleanup/cleanup.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "c10/cuda/CUDACachingAllocator.h"
#include "c10/cuda/CUDAException.h"
#include "c10/cuda/CUDAFunctions.h"
#include "c10/cuda/CUDAGuard.h"
#include "c10/cuda/CUDAStream.h"
#include "cuda/cuda_device.h"
#include "snapshot/device_runtime.h"

namespace ptqwatch::internal {
namespace {

cudaStream_t RawStream(DeviceRuntime::Stream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t RawEvent(DeviceRuntime::Event event) { return static_cast<cudaEvent_t>(event); }

void CheckNotCapturing(DeviceRuntime::Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(RawStream(stream), &status));
  TORCH_CHECK(
      status == cudaStreamCaptureStatusNone,
      "the update stream is capturing a CUDA graph; call OnStep and BeforeUpdate outside of "
      "it");
}

class CudaRuntime final : public DeviceRuntime {
 public:
  explicit CudaRuntime(at::Device device) : device_(device) {}

  Stream MakeStream() override {
    const c10::cuda::CUDAGuard guard(device_);
    int lowest = 0;
    int highest = 0;
    C10_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    // Not taken from c10's pool, which hands the same streams to other users.
    cudaStream_t stream = nullptr;
    C10_CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, lowest));
    if (probe_ == nullptr) probe_ = stream;
    return stream;
  }

  // A blocking wait leaves the core to other threads.
  Event MakeEvent() override { return NewEvent(cudaEventDisableTiming | cudaEventBlockingSync); }
  Event MakeTimedEvent() override { return NewEvent(cudaEventBlockingSync); }

  Stream Current() override { return c10::cuda::getCurrentCUDAStream(device_.index()).stream(); }

  void Record(Event event, Stream stream) override {
    const c10::cuda::CUDAGuard guard(device_);
    CheckNotCapturing(stream);
    C10_CUDA_CHECK(cudaEventRecord(RawEvent(event), RawStream(stream)));
  }

  void Wait(Stream stream, Event event) override {
    const c10::cuda::CUDAGuard guard(device_);
    CheckNotCapturing(stream);
    C10_CUDA_CHECK(cudaStreamWaitEvent(RawStream(stream), RawEvent(event), 0));
  }

  void Copy(Stream stream, const std::vector<at::Tensor>& destinations,
            const std::vector<at::Tensor>& sources) override {
    at::NoGradGuard no_grad;
    CheckNotCapturing(stream);
    // Makes the stream and its device current until the end of the scope.
    const c10::cuda::CUDAStreamGuard guard(
        c10::cuda::getStreamFromExternal(RawStream(stream), device_.index()));
    at::_foreach_copy_(destinations, sources);
  }

  void Synchronize(Stream stream) override {
    const c10::cuda::CUDAGuard guard(device_);
    // cudaStreamSynchronize would spin on a core by default. Several threads may wait at once, so
    // each call has its own event.
    const Event end = MakeEvent();
    const absl::Cleanup destroy = [end] { (void)cudaEventDestroy(RawEvent(end)); };
    C10_CUDA_CHECK(cudaEventRecord(RawEvent(end), RawStream(stream)));
    C10_CUDA_CHECK(cudaEventSynchronize(RawEvent(end)));
  }

  void SynchronizeEvent(Event event) noexcept override {
    (void)cudaEventSynchronize(RawEvent(event));
  }

  std::chrono::nanoseconds Between(Event begin, Event end) override {
    float milliseconds = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, RawEvent(begin), RawEvent(end)));
    return std::chrono::nanoseconds(static_cast<int64_t>(1e6 * static_cast<double>(milliseconds)));
  }

  void EnterThread(Stream stream) override {
    c10::cuda::set_device(device_.index());
    // An allocation or a query on this thread would break a CUDA graph that the trainer is
    // capturing, so the thread opts out for good. This follows set_device because the call has been
    // seen to create a context otherwise.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    C10_CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    c10::cuda::setCurrentCUDAStream(
        c10::cuda::getStreamFromExternal(RawStream(stream), device_.index()));
  }

  int64_t FreeBytes() override {
    const c10::cuda::CUDAGuard guard(device_);
    size_t free = 0;
    size_t total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return static_cast<int64_t>(free);
  }

  absl::Status Fault() noexcept override {
    const cudaError_t error = cudaStreamQuery(RawStream(probe_));
    // LibTorch's next check of a launch would throw if this stayed the last error.
    if (error == cudaErrorNotReady && cudaPeekAtLastError() == error) (void)cudaGetLastError();
    if (!IsSticky(error)) return absl::OkStatus();
    return absl::UnavailableError(
        StrCat(device_.str(), " returns only errors: ", cudaGetErrorString(error)));
  }

 private:
  Event NewEvent(unsigned int flags) {
    const c10::cuda::CUDAGuard guard(device_);
    cudaEvent_t event = nullptr;
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&event, flags));
    return event;
  }

  const at::Device device_;
  cudaStream_t probe_ = nullptr;
};

// Pinned memory for CopyAcross: 0.15 ms of a bus at 55 GB/s. Made once, because making it waits for
// the device and ends a graph capture; never freed, like events.
class PinnedPiece {
 public:
  static constexpr size_t kBytes = size_t{8} << 20;
  static PinnedPiece& Get() {
    static PinnedPiece* const piece = new PinnedPiece;
    return *piece;
  }
  bool usable() const { return memory_ != nullptr; }
  void Copy(char* to, const char* from, size_t bytes, cudaStream_t stream, cudaEvent_t copied) {
    const MutexLock lock(mutex_);
    for (size_t first = 0; first < bytes; first += kBytes) {
      const size_t count = std::min(kBytes, bytes - first);
      C10_CUDA_CHECK(cudaMemcpyAsync(memory_, from + first, count, cudaMemcpyDeviceToHost, stream));
      C10_CUDA_CHECK(cudaEventRecord(copied, stream));
      C10_CUDA_CHECK(cudaEventSynchronize(copied));
      std::memcpy(to + first, memory_, count);
    }
  }

 private:
  PinnedPiece() {
    if (cudaHostAlloc(&memory_, kBytes, cudaHostAllocDefault) == cudaSuccess) return;
    memory_ = nullptr;
    (void)cudaGetLastError();
  }
  Mutex mutex_;
  void* memory_ = nullptr;
};

}  // namespace

absl::StatusOr<std::shared_ptr<DeviceRuntime>> MakeCudaRuntime(at::Device device) {
  const int devices = c10::cuda::device_count();
  if (device.index() < 0 || device.index() >= devices) {
    return absl::FailedPreconditionError(
        StrCat(device.str(), " is not there: CUDA sees ", devices, " devices"));
  }
  const c10::cuda::CUDAGuard guard(device);  // device 0 would get a context otherwise
  PinnedPiece::Get();
  return std::make_shared<CudaRuntime>(device);
}

void CopyAcross(const at::Tensor& to, const at::Tensor& from) {
  const auto dense = [](const at::Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); };
  const bool in_pieces = from.is_cuda() && to.is_cpu() && from.dtype() == to.dtype() &&
                         from.strides() == to.strides() && dense(from) && dense(to);
  if (!in_pieces) {
    to.copy_(from);
    return;
  }
  const c10::cuda::CUDAGuard guard(from.device());
  if (!PinnedPiece::Get().usable()) {
    to.copy_(from);
    return;
  }
  cudaEvent_t copied = nullptr;
  C10_CUDA_CHECK(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming | cudaEventBlockingSync));
  const absl::Cleanup destroy = [copied] { (void)cudaEventDestroy(copied); };
  PinnedPiece::Get().Copy(static_cast<char*>(to.mutable_data_ptr()),
                          static_cast<const char*>(from.const_data_ptr()), from.nbytes(),
                          c10::cuda::getCurrentCUDAStream().stream(), copied);
}

absl::Status CheckCudaAllocator() {
  const std::string name = c10::cuda::CUDACachingAllocator::get()->name();
  if (name == "native") return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("nothing can be measured on a GPU beside LibTorch's allocator '", name,
             "' (PYTORCH_CUDA_ALLOC_CONF), which does not report memory; set "
             "MonitorOptions.monitor_device = 'cpu'"));
}

void CheckNotCapturing(const c10::Stream& stream) {
  if (!stream.device().is_cuda()) return;
  const c10::cuda::CUDAGuard guard(stream.device());
  CheckNotCapturing(CudaStreamOf(stream));
}

DeviceRuntime::Stream CudaStreamOf(const c10::Stream& stream) {
  return c10::cuda::CUDAStream(stream).stream();
}

}  // namespace ptqwatch::internal
