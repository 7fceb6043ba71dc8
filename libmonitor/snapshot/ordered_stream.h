#ifndef PTQWATCH_SNAPSHOT_ORDERED_STREAM_H_
#define PTQWATCH_SNAPSHOT_ORDERED_STREAM_H_

#include <memory>
#include <optional>
#include <utility>

#include "snapshot/device_runtime.h"
#include "snapshot/device_stream.h"
#include "snapshot/measuring_device.h"

namespace ptqwatch::internal {

/// DeviceStream built on the streams and events of a device. The constructor creates all of them;
/// later calls allocate nothing on the device.
class OrderedStream final : public DeviceStream {
 public:
  /// `updates`: the trainer's update stream; if empty, the stream that is current at each copy.
  /// `measured`: the device that the monitor works on, which may be `live`; null for the CPU.
  OrderedStream(std::shared_ptr<DeviceRuntime> live, std::optional<DeviceRuntime::Stream> updates,
                const std::shared_ptr<DeviceRuntime>& measured);

  void Settle() override;
  void Copy(const Tensors& destinations, const Tensors& sources) override;
  bool CopyBeside(const Tensors& destinations, const Tensors& sources) override;
  void Gate() override;
  void EnterMonitorThread() override;
  void WaitForCopy() override;
  void Drain() override;
  void FinishCopy() noexcept override;
  std::chrono::nanoseconds WorkTime(const Clock& clock) noexcept override;
  std::optional<int64_t> FreeBytes() override;
  std::optional<int64_t> FreeBytesForCopies() override { return live_->FreeBytes(); }
  absl::Status Fault() noexcept override;

 private:
  DeviceRuntime::Stream Updates() { return updates_ ? *updates_ : live_->Current(); }
  bool Elsewhere() { return measured_ && &measured_->runtime() != live_.get(); }

  const std::shared_ptr<DeviceRuntime> live_;
  const std::optional<DeviceRuntime::Stream> updates_;
  const DeviceRuntime::Stream reads_;   // the monitor thread's, on the live device
  const DeviceRuntime::Stream beside_;  // for CopyBeside
  const DeviceRuntime::Event copied_;
  const DeviceRuntime::Event updated_;
  const DeviceRuntime::Event copied_beside_;
  std::optional<MeasuringDevice> measured_;
};

/// For snapshots in host memory, which another process fills, that are measured on a device.
class FromHostStream final : public CpuStream {
 public:
  explicit FromHostStream(const std::shared_ptr<DeviceRuntime>& measured)
      : measured_(measured, measured->MakeStream()) {}

  void Settle() override { measured_.runtime().Synchronize(measured_.runtime().Current()); }
  void EnterMonitorThread() override { measured_.Enter(); }
  void Drain() override { measured_.Drain(); }
  std::chrono::nanoseconds WorkTime(const Clock& clock) noexcept override {
    return measured_.WorkTime(clock);
  }
  std::optional<int64_t> FreeBytes() override { return measured_.runtime().FreeBytes(); }
  absl::Status Fault() noexcept override { return measured_.runtime().Fault(); }

 private:
  MeasuringDevice measured_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_ORDERED_STREAM_H_
