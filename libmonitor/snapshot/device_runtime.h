#ifndef PTQWATCH_SNAPSHOT_DEVICE_RUNTIME_H_
#define PTQWATCH_SNAPSHOT_DEVICE_RUNTIME_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Stream.h"

namespace ptqwatch::internal {

/// The few things that the order of copies takes of one device: streams, events in them, queued
/// copies. Made of CUDA, or of a fake that runs what is queued as late as the events allow. Calls
/// throw c10::Error as ATen does, unless they are noexcept. Events and streams live as long as the
/// process: at its end the device's own runtime may be gone first.
class DeviceRuntime {
 public:
  using Stream = void*;
  using Event = void*;

  virtual ~DeviceRuntime() = default;

  /// A stream of the lowest priority that nobody else uses and that waits for no other.
  virtual Stream MakeStream() = 0;
  /// One that was never recorded counts as reached.
  virtual Event MakeEvent() = 0;
  /// One for SecondsBetween.
  virtual Event MakeTimedEvent() = 0;
  /// The calling thread's current stream on this device.
  virtual Stream Current() = 0;
  /// Marks what is queued on `stream` until now.
  virtual void Record(Event event, Stream stream) = 0;
  /// What is queued on `stream` from now on runs after the last Record of `event`.
  virtual void Wait(Stream stream, Event event) = 0;
  /// Queues a copy of each source over the destination of the same index. The calling thread's
  /// current stream stays current.
  virtual void Copy(Stream stream, const std::vector<at::Tensor>& destinations,
                    const std::vector<at::Tensor>& sources) = 0;
  /// Waits for all that is queued.
  virtual void Synchronize(Stream stream) = 0;
  /// Waits for the last Record. The result does not matter where the device is gone.
  virtual void SynchronizeEvent(Event event) noexcept = 0;
  /// Of the device's own time. REQUIRES: both were reached.
  virtual std::chrono::nanoseconds Between(Event begin, Event end) = 0;
  /// Makes `stream` the calling thread's current one for good, and keeps the thread's calls from
  /// breaking a graph that another thread captures.
  virtual void EnterThread(Stream stream) = 0;
  /// What an allocation could get.
  virtual int64_t FreeBytes() = 0;
  /// Ok, or Unavailable where the device gives nothing but errors any more in this process.
  virtual absl::Status Fault() noexcept = 0;
};

/// Of a CUDA device. FailedPrecondition in a build without CUDA, and where the device is not there.
absl::StatusOr<std::shared_ptr<DeviceRuntime>> MakeCudaRuntime(at::Device device);
/// The runtime's name for a stream of ATen's. REQUIRES: a CUDA stream, and a MakeCudaRuntime that
/// was ok.
DeviceRuntime::Stream CudaStreamOf(const c10::Stream& stream);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_DEVICE_RUNTIME_H_
