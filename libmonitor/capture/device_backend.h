#ifndef PTQWATCH_CAPTURE_DEVICE_BACKEND_H_
#define PTQWATCH_CAPTURE_DEVICE_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "capture/quantize_backend.h"
#include "cuda/compute_device.h"

namespace ptqwatch::internal {

/// Sums and quantizes on the replica's device, without a copy to the host, by DeviceGram and
/// DeviceQuantizer. Specs that DeviceQuantizer::Supports rejects are quantized on the host.
///
/// Grams lie in the device's arena and return their memory when the last of them is destroyed.
class DeviceBackend final : public QuantizeBackend {
 public:
  /// `compute` works on the memory of `device`, after the work that ATen has queued on the calling
  /// thread's current stream. `memory` holds compute's arena; undefined if another object owns that
  /// memory.
  DeviceBackend(at::Device device, std::unique_ptr<ComputeDevice> compute, at::Tensor memory = {})
      : device_(device), memory_(std::move(memory)), compute_(std::move(compute)) {}

  /// Sums rows of each type for each number of inputs, and quantizes a layer of each shape under
  /// its quantizers, so that the device's libraries load their code before training goes on:
  /// loading may wait for all work on the device. Errors are those of the device. May throw
  /// c10::Error.
  absl::Status Warm(const BackendNeeds& needs);

  at::Device device() const override { return device_; }
  int64_t weights_together() const override { return int64_t{1} << 25; }
  absl::StatusOr<std::unique_ptr<GramSum>> Sum(int64_t inputs) override;
  void Quantize(absl::Span<const Task> tasks, OnDone done,
                const ExecutionContext& context) override;

 private:
  // The length of the longest prefix of `which` that fits into the arena; at least 1.
  size_t FittingRun(absl::Span<const Task> tasks, absl::Span<const size_t> which);
  void QuantizeOnDevice(absl::Span<const Task> tasks, absl::Span<const size_t> which, OnDone done,
                        const ExecutionContext& context);
  void QuantizeOnHost(absl::Span<const Task> tasks, absl::Span<const size_t> which, OnDone done,
                      const ExecutionContext& context);

  const at::Device device_;
  const at::Tensor memory_;
  const std::unique_ptr<ComputeDevice> compute_;
  std::weak_ptr<ArenaScope> grams_;  // alive while a Gram is
};

/// Bytes of an arena that suffices for `needs`, with some room for taking several layers at a time.
absl::StatusOr<int64_t> DeviceArenaBytes(ComputeDevice& compute, const BackendNeeds& needs);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_DEVICE_BACKEND_H_
