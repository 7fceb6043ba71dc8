#include "cuda/api_recorder.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cupti.h>
#include <pthread.h>

#include <cstddef>
#include <cstring>
#include <mutex>
#include <optional>

#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::testing {
namespace {

// The place of the stream among a function's arguments.
struct StreamAt {
  CUpti_CallbackDomain domain;
  CUpti_CallbackId function;
  size_t offset;
};

#define PTQWATCH_DRIVER(name) \
  { CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_##name, offsetof(name##_params, hStream) }
#define PTQWATCH_RUNTIME(name) \
  { CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_##name, offsetof(name##_params, stream) }

constexpr StreamAt kStreams[] = {
    PTQWATCH_DRIVER(cuLaunchKernel),
    PTQWATCH_DRIVER(cuMemcpyAsync),
    PTQWATCH_DRIVER(cuMemcpyHtoDAsync_v2),
    PTQWATCH_DRIVER(cuMemcpyDtoHAsync_v2),
    PTQWATCH_DRIVER(cuMemcpyDtoDAsync_v2),
    PTQWATCH_DRIVER(cuMemsetD8Async),
    PTQWATCH_DRIVER(cuMemsetD32Async),
    PTQWATCH_DRIVER(cuEventRecord),
    PTQWATCH_DRIVER(cuEventRecordWithFlags),
    PTQWATCH_DRIVER(cuStreamWaitEvent),
    PTQWATCH_DRIVER(cuStreamSynchronize),
    PTQWATCH_RUNTIME(cudaLaunchKernel_v7000),
    PTQWATCH_RUNTIME(cudaMemcpyAsync_v3020),
    PTQWATCH_RUNTIME(cudaMemsetAsync_v3020),
    PTQWATCH_RUNTIME(cudaEventRecord_v3020),
    PTQWATCH_RUNTIME(cudaStreamWaitEvent_v3020),
    PTQWATCH_RUNTIME(cudaStreamSynchronize_v3020),
};

#undef PTQWATCH_DRIVER
#undef PTQWATCH_RUNTIME

std::optional<uint64_t> StreamOf(CUpti_CallbackDomain domain, CUpti_CallbackId function,
                                 const void* arguments) {
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API &&
      function == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx) {
    const auto* launch = static_cast<const cuLaunchKernelEx_params*>(arguments);
    return reinterpret_cast<uint64_t>(launch->config->hStream);
  }
  for (const StreamAt& one : kStreams) {
    if (one.domain != domain || one.function != function) continue;
    uint64_t stream = 0;
    std::memcpy(&stream, static_cast<const char*>(arguments) + one.offset, sizeof(stream));
    return stream;
  }
  return std::nullopt;
}

absl::Status CuptiStatus(CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) return absl::OkStatus();
  const char* text = "";
  cuptiGetResultString(result, &text);
  return absl::UnavailableError(internal::StrCat(what, ": ", text));
}

class CuptiRecorder final : public ApiRecorder {
 public:
  ~CuptiRecorder() override {
    if (subscriber_ != nullptr) cuptiUnsubscribe(subscriber_);
  }

  absl::Status Subscribe() {
    PTQWATCH_RETURN_IF_ERROR(
        CuptiStatus(cuptiSubscribe(&subscriber_, &CuptiRecorder::OnCall, this), "subscribing"));
    for (const CUpti_CallbackDomain domain :
         {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API}) {
      PTQWATCH_RETURN_IF_ERROR(
          CuptiStatus(cuptiEnableDomain(1, subscriber_, domain), "enabling callbacks"));
    }
    return absl::OkStatus();
  }

  void Mark(ApiEffect effect) override {
    const std::lock_guard lock(mutex_);
    calls_.push_back({"", ThreadName(), effect});
  }
  std::vector<ApiCall> Calls() const override {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  static void OnCall(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId function,
                     const void* data) {
    const auto* call = static_cast<const CUpti_CallbackData*>(data);
    if (call->callbackSite != CUPTI_API_ENTER) return;
    ApiEffect effect = EffectOf(call->functionName);
    const std::optional<uint64_t> stream = StreamOf(domain, function, call->functionParams);
    if (stream) effect = ApiEffect::kQueues;
    if (effect == ApiEffect::kNone) return;
    auto* recorder = static_cast<CuptiRecorder*>(self);
    const std::lock_guard lock(recorder->mutex_);
    recorder->calls_.push_back({call->functionName, ThreadName(), effect, stream.value_or(0)});
  }

  CUpti_SubscriberHandle subscriber_ = nullptr;
  mutable std::mutex mutex_;
  std::vector<ApiCall> calls_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ApiRecorder>> ApiRecorder::Start() {
  auto recorder = std::make_unique<CuptiRecorder>();
  PTQWATCH_RETURN_IF_ERROR(recorder->Subscribe());
  return recorder;
}

std::string ThreadName() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return name;
}

}  // namespace ptqwatch::testing
