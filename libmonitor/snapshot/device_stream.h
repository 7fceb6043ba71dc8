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
/// reports the free memory and the faults of the monitor's device. On the CPU no ordering is
/// needed. This is the only interface to streams.
class DeviceStream {
 public:
  using Tensors = std::vector<at::Tensor>;
  virtual ~DeviceStream() = default;

  /// Thread of Monitor::Create: waits for the work queued on its current stream and on the update
  /// stream.
  virtual void Settle() = 0;
  /// Trainer's thread: copies each source over the destination with the same index (same sizes,
  /// dtype and device). Runs on the update stream, or on the current stream if there is no update
  /// stream, and records its end. Leaves the current stream unchanged. Throws c10::Error as ATen
  /// does. REQUIRES: neither list is empty.
  virtual void Copy(const Tensors& destinations, const Tensors& sources) = 0;
  /// Like Copy, but on a stream of the monitor, after the work queued on the update stream so far.
  /// The sources must stay unchanged until Gate has been called. Returns whether a Gate is needed.
  virtual bool CopyBeside(const Tensors& destinations, const Tensors& sources) = 0;
  /// Trainer's thread: makes work queued on the update stream after this call run after the last
  /// CopyBeside.
  virtual void Gate() = 0;
  /// Monitor thread, once: makes the monitor's own stream current.
  virtual void EnterMonitorThread() = 0;
  /// Monitor thread: makes work that it queues after this call run after the last copies.
  virtual void WaitForCopy() = 0;
  /// Monitor thread: waits for its own queued work, and for no other stream.
  virtual void Drain() = 0;
  /// Any thread: waits for the last copies. Call this before freeing their destinations; otherwise
  /// another stream could be given the memory while a copy is still queued.
  virtual void FinishCopy() noexcept = 0;

  /// Monitor thread: the total time it has worked, for Pacer: CPU time on the CPU, else device
  /// time. Waits for its queued device work, so at most one of the pacer's quanta is queued ahead.
  virtual std::chrono::nanoseconds WorkTime(const Clock& clock) noexcept = 0;
  /// Free bytes of the measuring device. Empty for the CPU, whose memory ByteBudget limits.
  virtual std::optional<int64_t> FreeBytes() = 0;
  /// Free bytes of the device that holds the snapshots; empty for the CPU.
  virtual std::optional<int64_t> FreeBytesForCopies() = 0;
  /// Monitor thread: returns Unavailable once every call on a device fails.
  virtual absl::Status Fault() noexcept = 0;

  /// Creates the stream for live tensors on `live` that are measured on `measured`. `updates` is
  /// the stream on which the trainer writes them, if not the current stream. Returns
  /// FailedPrecondition if that stream belongs to another device, or if a device is missing.
  static absl::StatusOr<std::unique_ptr<DeviceStream>> Create(
      at::Device live, at::Device measured, std::optional<c10::Stream> updates = std::nullopt);
};

/// Drains the stream and ignores errors, for use after a failure.
void DrainQuietly(DeviceStream& stream) noexcept;

/// For tests: Create takes the runtimes of all devices, including the CPU, from `make`. Null
/// restores the default. REQUIRES: no monitor is alive.
using MakeRuntime = std::function<absl::StatusOr<std::shared_ptr<DeviceRuntime>>(at::Device)>;
void ReplaceDeviceRuntimes(MakeRuntime make);

/// Copies CPU tensors: by memcpy if both sides are contiguous (eight times as fast as
/// _foreach_copy_ for many small tensors), else by copy_.
class CpuStream : public DeviceStream {
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
