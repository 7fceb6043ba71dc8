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

/// The operations on one device that ordering copies needs: streams, events and queued copies.
/// Implemented by CUDA, and in tests by a fake that runs queued work as late as the events allow.
/// Unless noexcept, calls throw c10::Error as ATen does. Events and streams are never destroyed,
/// because the device's own runtime may be gone before the end of the process.
class DeviceRuntime {
 public:
  using Stream = void*;
  using Event = void*;

  virtual ~DeviceRuntime() = default;

  /// Makes an unshared stream of the lowest priority without implicit synchronization.
  virtual Stream MakeStream() = 0;
  /// Makes an event. An event that was never recorded counts as reached.
  virtual Event MakeEvent() = 0;
  /// Makes an event with timing, for Between.
  virtual Event MakeTimedEvent() = 0;
  /// The calling thread's current stream on this device.
  virtual Stream Current() = 0;
  /// Records `event` after all work queued on `stream` so far.
  virtual void Record(Event event, Stream stream) = 0;
  /// Makes work queued on `stream` after this call run after the last Record of `event`.
  virtual void Wait(Stream stream, Event event) = 0;
  /// Queues a copy of each source over the destination of the same index. The calling thread's
  /// current stream stays current.
  virtual void Copy(Stream stream, const std::vector<at::Tensor>& destinations,
                    const std::vector<at::Tensor>& sources) = 0;
  /// Blocks until all work queued on `stream` is done.
  virtual void Synchronize(Stream stream) = 0;
  /// Blocks until the last Record of `event` is reached. If the device is lost, errors are ignored.
  virtual void SynchronizeEvent(Event event) noexcept = 0;
  /// Device time between two timed events. REQUIRES: both were reached.
  virtual std::chrono::nanoseconds Between(Event begin, Event end) = 0;
  /// Makes `stream` the calling thread's current stream for good, and keeps the thread's calls from
  /// breaking a graph that another thread captures.
  virtual void EnterThread(Stream stream) = 0;
  /// Free bytes for new allocations.
  virtual int64_t FreeBytes() = 0;
  /// Returns Unavailable once every call on the device fails for the rest of the process, else ok.
  virtual absl::Status Fault() noexcept = 0;
};

/// The runtime of a CUDA device. Returns FailedPrecondition if the build has no CUDA or the machine
/// does not have the device.
absl::StatusOr<std::shared_ptr<DeviceRuntime>> MakeCudaRuntime(at::Device device);
/// FailedPrecondition unless LibTorch's own allocator serves CUDA devices: another one, such as
/// cudaMallocAsync, does not report how much memory a measurement takes.
absl::Status CheckCudaAllocator();
/// Monitor thread: copies `from` over `to`, of the same sizes and dtype. From a GPU to host memory,
/// in pieces, each after the other has arrived, so that the trainer's own copies and launches get
/// through: a copy to pageable memory holds them up for as long as it takes. Throws as ATen does.
void CopyAcross(const at::Tensor& to, const at::Tensor& from);
/// Throws c10::Error while a CUDA graph is captured on the stream: work queued then becomes a part
/// of the graph or ends the capture.
void CheckNotCapturing(const c10::Stream& stream);
/// The native stream of a CUDA stream of ATen's. REQUIRES: MakeCudaRuntime has succeeded.
DeviceRuntime::Stream CudaStreamOf(const c10::Stream& stream);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_DEVICE_RUNTIME_H_
