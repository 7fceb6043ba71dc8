#ifndef PTQWATCH_SNAPSHOT_ORDERED_STREAM_H_
#define PTQWATCH_SNAPSHOT_ORDERED_STREAM_H_

#include <memory>
#include <optional>

#include "snapshot/device_runtime.h"
#include "snapshot/device_stream.h"

namespace ptqwatch::internal {

/// DeviceStream built on the streams and events of a device. The constructor creates all of them;
/// later calls allocate nothing on the device.
class OrderedStream final : public DeviceStream {
 public:
  /// `updates`: the trainer's update stream; if empty, the stream that is current at each copy.
  /// `measured`: the device that the monitor works on, which may be `live`; null for the CPU.
  OrderedStream(std::shared_ptr<DeviceRuntime> live, std::optional<DeviceRuntime::Stream> updates,
                std::shared_ptr<DeviceRuntime> measured);

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
  // Adds the device time since the last reading to worked_.
  void ReadWork();

  const std::shared_ptr<DeviceRuntime> live_;
  const std::shared_ptr<DeviceRuntime> measured_;
  const std::optional<DeviceRuntime::Stream> updates_;
  const DeviceRuntime::Stream reads_;   // the monitor thread's, on the live device
  const DeviceRuntime::Stream beside_;  // for CopyBeside
  const DeviceRuntime::Event copied_;
  const DeviceRuntime::Event updated_;
  const DeviceRuntime::Event copied_beside_;

  // Used by the monitor thread.
  DeviceRuntime::Stream work_ = nullptr;  // on the measured device
  DeviceRuntime::Event begin_ = nullptr;
  DeviceRuntime::Event end_ = nullptr;
  bool began_ = false;
  std::chrono::nanoseconds read_at_{0};
  std::chrono::nanoseconds worked_{0};
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_ORDERED_STREAM_H_
