#include "snapshot/device_stream.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "snapshot/device_runtime.h"
#include "snapshot/ordered_stream.h"

namespace ptqwatch::internal {

namespace {

MakeRuntime& Replaced() {
  static MakeRuntime* const make = new MakeRuntime;
  return *make;
}

absl::StatusOr<std::shared_ptr<DeviceRuntime>> RuntimeOf(at::Device device, std::string_view what) {
  if (Replaced()) return Replaced()(device);
  if (device.is_cuda()) return MakeCudaRuntime(device);
  return absl::FailedPreconditionError(
      StrCat(what, " on ", device.str(), "; only cpu and cuda are supported"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceStream>> DeviceStream::Create(
    at::Device live, at::Device measured, std::optional<c10::Stream> updates) {
  if (updates && updates->device() != live) {
    return absl::FailedPreconditionError(StrCat("the stream that the updates run on is stream ",
                                                updates->id(), " of ", updates->device().str(),
                                                ", but the tensors are on ", live.str()));
  }
  if (!Replaced() && live.is_cpu() && measured.is_cpu()) return std::make_unique<CpuStream>();
  if (!Replaced() && measured.is_cuda()) PTQWATCH_RETURN_IF_ERROR(CheckCudaAllocator());
  if (live.is_cpu() && !measured.is_cpu()) {
    PTQWATCH_ASSIGN_OR_RETURN(const auto runtime, RuntimeOf(measured, "the replica would be"));
    return Guard([&]() -> absl::StatusOr<std::unique_ptr<DeviceStream>> {
      return std::make_unique<FromHostStream>(runtime);
    });
  }
  PTQWATCH_ASSIGN_OR_RETURN(const auto live_runtime, RuntimeOf(live, "the tensors are"));
  std::shared_ptr<DeviceRuntime> measured_runtime;
  if (measured == live) {
    measured_runtime = live_runtime;
  } else if (!measured.is_cpu()) {
    PTQWATCH_ASSIGN_OR_RETURN(measured_runtime, RuntimeOf(measured, "the replica would be"));
  }
  return Guard([&]() -> absl::StatusOr<std::unique_ptr<DeviceStream>> {
    const auto written = updates ? std::optional(CudaStreamOf(*updates)) : std::nullopt;
    auto stream = std::make_unique<OrderedStream>(live_runtime, written, measured_runtime);
    // Waits for pending updates, so Monitor::Create reads complete weights.
    stream->Settle();
    return stream;
  });
}

void DrainQuietly(DeviceStream& stream) noexcept {
  (void)Guard([&] {
    stream.Drain();
    return absl::OkStatus();
  });
}

void ReplaceDeviceRuntimes(MakeRuntime make) { Replaced() = std::move(make); }

void CpuStream::Copy(const Tensors& destinations, const Tensors& sources) {
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < sources.size(); ++i) {
    const at::Tensor& to = destinations[i];
    const at::Tensor& from = sources[i];
    if (to.is_contiguous() && from.is_contiguous() && to.dtype() == from.dtype()) {
      if (from.nbytes() > 0)
        std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
    } else {
      to.copy_(from);
    }
  }
}

}  // namespace ptqwatch::internal
