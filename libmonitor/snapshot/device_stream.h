#ifndef PTQWATCH_SNAPSHOT_DEVICE_STREAM_H_
#define PTQWATCH_SNAPSHOT_DEVICE_STREAM_H_

#include <memory>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "c10/core/Stream.h"

namespace ptqwatch::internal {

/// Orders the copy of the weights, made on the trainer's stream, before the monitor's reads on its
/// own stream. On the CPU the order holds by itself and only Copy does anything. No other code
/// knows about streams.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;

  /// Thread of Monitor::Create: waits for the work queued on its current stream and on the update
  /// stream.
  virtual void Settle() = 0;
  /// Trainer's thread: copies each source over the destination of the same index (same sizes, dtype
  /// and device). Runs on the update stream, or on the current stream if there is no update stream,
  /// and records where it ends. The current stream stays current. Throws c10::Error as ATen does.
  /// REQUIRES: neither list is empty.
  virtual void Copy(const std::vector<at::Tensor>& destinations,
                    const std::vector<at::Tensor>& sources) = 0;
  /// Monitor thread, once: makes the monitor's own stream current.
  virtual void EnterMonitorThread() = 0;
  /// Monitor thread: work that it queues from here on runs after the last Copy.
  virtual void WaitForCopy() = 0;
  /// Monitor thread: waits for its own queued work, and for no other stream.
  virtual void Drain() = 0;
  /// Any thread: waits for the last Copy. Called before its destinations are freed, because another
  /// stream could otherwise be given their memory while the copy is still queued.
  virtual void FinishCopy() noexcept = 0;

  /// For tensors on `device`. `updates` is the stream on which the trainer writes them, if that is
  /// not the current one. FailedPrecondition if that stream belongs to another device, or if this
  /// build does not support the device.
  static absl::StatusOr<std::unique_ptr<DeviceStream>> Create(
      at::Device device, std::optional<c10::Stream> updates = std::nullopt);
};

/// The part of Create that differs between builds with and without CUDA.
absl::StatusOr<std::unique_ptr<DeviceStream>> MakeCudaStream(at::Device device,
                                                             std::optional<c10::Stream> updates);

/// Copies CPU tensors: memcpy if both sides are contiguous (eight times as fast as _foreach_copy_
/// for many small tensors), copy_ otherwise.
class CpuStream final : public DeviceStream {
 public:
  void Settle() override {}
  void Copy(const std::vector<at::Tensor>& destinations,
            const std::vector<at::Tensor>& sources) override;
  void EnterMonitorThread() override {}
  void WaitForCopy() override {}
  void Drain() override {}
  void FinishCopy() noexcept override {}
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_DEVICE_STREAM_H_
