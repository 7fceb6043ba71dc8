#ifndef PTQWATCH_SNAPSHOT_MEASURING_DEVICE_H_
#define PTQWATCH_SNAPSHOT_MEASURING_DEVICE_H_

#include <chrono>
#include <memory>
#include <utility>

#include "ptqwatch/execution_context.h"
#include "snapshot/device_runtime.h"

namespace ptqwatch::internal {

/// The stream on which the monitor thread measures, and the device time of its work. For the
/// monitor thread.
class MeasuringDevice {
 public:
  MeasuringDevice(std::shared_ptr<DeviceRuntime> runtime, DeviceRuntime::Stream stream)
      : runtime_(std::move(runtime)),
        stream_(stream),
        begin_(runtime_->MakeTimedEvent()),
        end_(runtime_->MakeTimedEvent()) {}

  DeviceRuntime& runtime() { return *runtime_; }
  void Enter() { runtime_->EnterThread(stream_); }
  void Drain() { runtime_->Synchronize(stream_); }
  /// As DeviceStream::WorkTime.
  std::chrono::nanoseconds WorkTime(const Clock& clock) noexcept;
  /// The stream was idle since the last WorkTime: that time is not work.
  void SkipIdleTime();

 private:
  // Adds the device time since the last reading to worked_.
  void ReadWork();

  const std::shared_ptr<DeviceRuntime> runtime_;
  const DeviceRuntime::Stream stream_;
  DeviceRuntime::Event begin_;
  DeviceRuntime::Event end_;
  bool began_ = false;
  std::chrono::nanoseconds read_at_{0};
  std::chrono::nanoseconds worked_{0};
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_MEASURING_DEVICE_H_
