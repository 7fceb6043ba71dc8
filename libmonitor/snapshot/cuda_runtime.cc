// For builds with CUDA. The binary also runs on machines without a GPU.
#include <cuda_runtime_api.h>

#include <optional>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/_foreach_copy.h"
#include "c10/cuda/CUDAException.h"
#include "c10/cuda/CUDAGuard.h"
#include "c10/cuda/CUDAStream.h"
#include "snapshot/device_stream.h"

namespace ptqwatch::internal {
namespace {

class CudaStream final : public DeviceStream {
 public:
  CudaStream(at::Device device, std::optional<c10::Stream> updates) : device_(device) {
    if (updates) updates_.emplace(*updates);
    c10::cuda::CUDAGuard guard(device_);
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming));
    int lowest = 0;
    int highest = 0;
    C10_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    // Not from c10's pool, whose streams are shared with other users.
    C10_CUDA_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, lowest));
  }

  // Event and stream are leaked: at exit the CUDA runtime may already be gone.
  ~CudaStream() override = default;

  void Settle() override {
    c10::cuda::getCurrentCUDAStream(device_.index()).synchronize();
    if (updates_) updates_->synchronize();
  }

  void Copy(const std::vector<at::Tensor>& destinations,
            const std::vector<at::Tensor>& sources) override {
    at::NoGradGuard no_grad;
    const c10::cuda::CUDAStream stream =
        updates_ ? *updates_ : c10::cuda::getCurrentCUDAStream(device_.index());
    // Makes stream and device current, and restores the trainer's at the end of the scope.
    c10::cuda::CUDAStreamGuard guard(stream);
    at::_foreach_copy_(destinations, sources);
    C10_CUDA_CHECK(cudaEventRecord(copied_, stream.stream()));
  }

  void EnterMonitorThread() override {
    c10::cuda::set_device(device_.index());
    // An allocation or a query on this thread would break a CUDA graph that the trainer is
    // capturing, unless the thread opts out for good. After set_device, because the call was seen
    // to create a context otherwise.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    C10_CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromExternal(stream_, device_.index()));
  }

  void WaitForCopy() override { C10_CUDA_CHECK(cudaStreamWaitEvent(stream_, copied_, 0)); }

  void Drain() override { C10_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

  // The result does not matter: an event that was never recorded counts as done, and at exit the
  // runtime may be gone, and every copy with it.
  void FinishCopy() noexcept override { (void)cudaEventSynchronize(copied_); }

 private:
  const at::Device device_;
  std::optional<c10::cuda::CUDAStream> updates_;
  cudaEvent_t copied_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceStream>> MakeCudaStream(at::Device device,
                                                             std::optional<c10::Stream> updates) {
  auto stream = std::make_unique<CudaStream>(device, updates);
  // Monitor::Create then reads weights whose updates are complete.
  stream->Settle();
  return stream;
}

}  // namespace ptqwatch::internal
