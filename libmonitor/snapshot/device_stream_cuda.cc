// The build with CUDA; the same binary runs where there is no GPU.
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
  explicit CudaStream(at::Device device) : device_(device) {
    c10::cuda::CUDAGuard guard(device_);
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming));
    int least = 0;
    int greatest = 0;
    C10_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    // Not from c10's pool: its streams are shared with whoever asks.
    C10_CUDA_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, least));
  }

  // Event and stream are leaked: at exit the CUDA runtime may already be gone.
  ~CudaStream() override = default;

  void Copy(const std::vector<at::Tensor>& destinations,
            const std::vector<at::Tensor>& sources) override {
    at::NoGradGuard no_grad;
    c10::cuda::CUDAGuard guard(device_);
    at::_foreach_copy_(destinations, sources);
    C10_CUDA_CHECK(
        cudaEventRecord(copied_, c10::cuda::getCurrentCUDAStream(device_.index()).stream()));
  }

  void EnterMonitorThread() override {
    c10::cuda::set_device(device_.index());
    // A CUDA graph that the trainer captures would be broken by an allocation or a query of this
    // thread unless it says, for good, that it does not take part. After set_device: the call was
    // seen to create a context otherwise.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    C10_CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromExternal(stream_, device_.index()));
  }

  void WaitForCopy() override { C10_CUDA_CHECK(cudaStreamWaitEvent(stream_, copied_, 0)); }

  void Drain() override { C10_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

 private:
  const at::Device device_;
  cudaEvent_t copied_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceStream> DeviceStream::Create(at::Device device) {
  if (device.is_cuda()) return std::make_unique<CudaStream>(device);
  return std::make_unique<CpuStream>();
}

}  // namespace ptqwatch::internal
