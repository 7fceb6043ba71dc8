#ifndef PTQWATCH_SNAPSHOT_DEVICE_STREAM_H_
#define PTQWATCH_SNAPSHOT_DEVICE_STREAM_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Stream.h"
#include "ptqwatch/execution_context.h"
#include "snapshot/device_runtime.h"

namespace ptqwatch::internal {

/// Orders the copies of the weights between the trainer's updates and the monitor's reads, and
/// tells what the device that the monitor works on has to give. On the CPU the order holds by
/// itself. No other code knows about streams.
class DeviceStream {
 public:
  using Tensors = std::vector<at::Tensor>;
  virtual ~DeviceStream() = default;

  /// Thread of Monitor::Create: waits for the work queued on its current stream and on the update
  /// stream.
  virtual void Settle() = 0;
  /// Trainer's thread: copies each source over the destination of the same index (same sizes, dtype
  /// and device). Runs on the update stream, or on the current stream if there is no update stream,
  /// and records where it ends. The current stream stays current. Throws c10::Error as ATen does.
  /// REQUIRES: neither list is empty.
  virtual void Copy(const Tensors& destinations, const Tensors& sources) = 0;
  /// The same on a stream of the monitor's, after what the update stream has to do until now. The
  /// sources must stay as they are until what follows a Gate. True where a Gate is needed at all.
  virtual bool CopyBeside(const Tensors& destinations, const Tensors& sources) = 0;
  /// Trainer's thread: what it queues on the update stream from here on runs after the last
  /// CopyBeside.
  virtual void Gate() = 0;
  /// Monitor thread, once: makes the monitor's own stream current.
  virtual void EnterMonitorThread() = 0;
  /// Monitor thread: work that it queues from here on runs after the last copies.
  virtual void WaitForCopy() = 0;
  /// Monitor thread: waits for its own queued work, and for no other stream.
  virtual void Drain() = 0;
  /// Any thread: waits for the last copies. Called before their destinations are freed, because
  /// another stream could otherwise be given their memory while a copy is still queued.
  virtual void FinishCopy() noexcept = 0;

  /// Monitor thread: how long it has worked, as Pacer wants it: its CPU time, or the device's time.
  /// Waits for what it has queued on a device, so that no more than a pacer's quantum is ahead.
  virtual std::chrono::nanoseconds WorkTime(const Clock& clock) noexcept = 0;
  /// Free bytes of the device that is measured on; nothing for the CPU, whose memory is counted
  /// elsewhere.
  virtual std::optional<int64_t> FreeBytes() = 0;
  /// The same of the device that snapshots are copied on.
  virtual std::optional<int64_t> FreeBytesForCopies() = 0;
  /// Unavailable once a device gives nothing but errors. Monitor thread.
  virtual absl::Status Fault() noexcept = 0;

  /// For live tensors on `live`, measured on `measured`. `updates` is the stream on which the
  /// trainer writes them, if that is not the current one. FailedPrecondition if that stream belongs
  /// to another device, or if this build or machine does not have the devices.
  static absl::StatusOr<std::unique_ptr<DeviceStream>> Create(
      at::Device live, at::Device measured, std::optional<c10::Stream> updates = std::nullopt);
  /// The same for tensors that are measured where they are.
  static absl::StatusOr<std::unique_ptr<DeviceStream>> Create(at::Device live) {
    return Create(live, live);
  }
};

/// Drain, at the end of whatever went wrong.
void DrainQuietly(DeviceStream& stream) noexcept;

/// Tests only: from now on Create asks `make` for the runtimes of all devices, the CPU's too. Null:
/// no longer. While no monitor lives.
using MakeRuntime = std::function<absl::StatusOr<std::shared_ptr<DeviceRuntime>>(at::Device)>;
void ReplaceDeviceRuntimes(MakeRuntime make);

/// Copies CPU tensors: memcpy if both sides are contiguous (eight times as fast as _foreach_copy_
/// for many small tensors), copy_ otherwise.
class CpuStream final : public DeviceStream {
 public:
  void Settle() override {}
  void Copy(const Tensors& destinations, const Tensors& sources) override;
  bool CopyBeside(const Tensors& destinations, const Tensors& sources) override {
    Copy(destinations, sources);
    return false;
  }
  void Gate() override {}
  void EnterMonitorThread() override {}
  void WaitForCopy() override {}
  void Drain() override {}
  void FinishCopy() noexcept override {}
  std::chrono::nanoseconds WorkTime(const Clock& clock) noexcept override {
    return clock.ThreadCpu();
  }
  std::optional<int64_t> FreeBytes() override { return std::nullopt; }
  std::optional<int64_t> FreeBytesForCopies() override { return std::nullopt; }
  absl::Status Fault() noexcept override { return absl::OkStatus(); }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_DEVICE_STREAM_H_
