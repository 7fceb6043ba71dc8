#ifndef PTQWATCH_SNAPSHOT_DEVICE_STREAM_H_
#define PTQWATCH_SNAPSHOT_DEVICE_STREAM_H_

#include <memory>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "c10/core/Stream.h"

namespace ptqwatch::internal {

/// Orders the copy of the weights, made on the trainer's stream, before the monitor's reads on a
/// stream of its own. On the CPU, and in a build without CUDA, everything is already in order and
/// all calls are empty. The one place that knows about streams.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;

  /// Create's thread: returns when what is queued on its current stream and on the update stream is
  /// done.
  virtual void Settle() = 0;
  /// Trainer's thread: copies each source over the destination of the same index (same sizes, same
  /// dtype, same device) on the update stream, or where none was given on the current stream, and
  /// marks the place. The current stream stays what it is. Throws c10::Error as ATen does. Neither
  /// list is empty.
  virtual void Copy(const std::vector<at::Tensor>& destinations,
                    const std::vector<at::Tensor>& sources) = 0;
  /// Monitor thread, once: makes the monitor's own stream current.
  virtual void EnterMonitorThread() = 0;
  /// Monitor thread: what it queues from here on comes after the last Copy.
  virtual void WaitForCopy() = 0;
  /// Monitor thread: returns when all it has queued is done. Waits for no other stream.
  virtual void Drain() = 0;
  /// Any thread: returns when the last Copy is done. Before its destinations are freed: another
  /// stream could be given their memory while the copy is still queued.
  virtual void FinishCopy() noexcept = 0;

  /// For tensors on `device`. `updates` is the stream on which the trainer writes them, if it is
  /// not simply the current one. FailedPrecondition where that is a stream of another device, or
  /// where this build knows nothing of the device.
  static absl::StatusOr<std::unique_ptr<DeviceStream>> Create(
      at::Device device, std::optional<c10::Stream> updates = std::nullopt);
};

/// The part of Create that differs between the builds with and without CUDA.
absl::StatusOr<std::unique_ptr<DeviceStream>> MakeCudaStream(at::Device device,
                                                             std::optional<c10::Stream> updates);

/// Copies of CPU tensors: memcpy where both sides are contiguous (eight times the speed of
/// _foreach_copy_ for many small tensors), copy_ otherwise.
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
