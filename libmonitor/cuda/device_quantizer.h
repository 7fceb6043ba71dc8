#ifndef PTQWATCH_CUDA_DEVICE_QUANTIZER_H_
#define PTQWATCH_CUDA_DEVICE_QUANTIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/compute_device.h"
#include "cuda/device_gram.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {

/// A weight in a device's memory, and how to quantize it.
struct DeviceLayer {
  const float* weight = nullptr;  ///< [rows, cols] row-major
  int64_t rows = 0;
  int64_t cols = 0;
  const DeviceGram* gram = nullptr;  ///< finished; null if the method needs no statistics
  QuantizerSpec spec = {};
  /// Memory for the results, [rows, cols]. If null, the quantizer provides it.
  float* dequantized = nullptr;
  uint8_t* codes = nullptr;
};

/// The outcome for one layer. Pointers are device pointers. A pointer is null if the status implies
/// that there are no codes, or if the method has no such result.
struct DeviceResult {
  /// Everything except codes, scale, zero, dequantized, order and channel_scale.
  QuantizedWeight numbers;
  int64_t tokens = 0;
  /// |W_hat - W|^2, summed in float64; empty without codes.
  std::optional<double> squared_error;
  int64_t rows = 0;
  int64_t cols = 0;
  const uint8_t* codes = nullptr;      ///< [rows, cols]
  const float* dequantized = nullptr;  ///< [rows, cols]
  const float* scale = nullptr;        ///< [scales]
  const float* zero = nullptr;         ///< [scales]; null for NF4
  int64_t scales = 0;
  const int32_t* order = nullptr;        ///< GPTQ: [cols]
  const float* channel_scale = nullptr;  ///< AWQ: [cols]
};

/// Quantizes weights on a device by the methods of ptqwatch/quantizer.h, with the same results up
/// to rounding. Fewer than 0.3 % of the codes and 1e-3 of a loss differ.
///
/// Our own kernels give a layer the same bits, whatever other layers it is quantized with. On a
/// GPU, cuBLAS may add up in another order for a batch, and the number of layers quantized together
/// depends on the arena's free memory. With another arena or other layers, bits may therefore
/// differ within the limits above.
///
/// duplicate_columns compares sums exactly. On a GPU, with more than 256 inputs, sums from
/// different panels of the Gram matrix may differ in their last bits, so the count is a lower
/// bound.
///
/// Layers of one call that agree in shape and in their spec, except for the grid, go through the
/// kernels together, up to kMaxBatch, if memory allows it and their inputs are either all the same
/// or all different. So one weight at 3 and 4 bits, or weights with the same inputs, share one
/// factor.
///
/// Work is cut into pieces that by arithmetic take less than about 1 ms on an H100. Longer may be,
/// from about 16384 inputs on, the passes over H; and from about 128 M weights on, such as
/// 16384 x 8192, the passes over a weight, each of which is one launch.
class DeviceQuantizer {
 public:
  /// `device` must outlive the quantizer. The destructor releases its arena memory, so quantizers
  /// and other users of the arena must be destroyed in reverse order.
  explicit DeviceQuantizer(ComputeDevice& device);
  ~DeviceQuantizer();
  DeviceQuantizer(const DeviceQuantizer&) = delete;
  DeviceQuantizer& operator=(const DeviceQuantizer&) = delete;

  /// Whether weights can be quantized so on a device.
  static bool Supports(const QuantizerSpec& spec);

  /// The minimum arena memory for Begin and Collect, in bytes. With up to kMaxBatch times as much,
  /// layers are quantized together.
  static absl::StatusOr<int64_t> WorkingBytes(std::span<const DeviceLayer> layers);

  /// Queues the work without waiting. Call once per quantizer. Weights and second moments must not
  /// change until Collect has returned. Errors: as Quantize; FailedPrecondition for unfinished
  /// second moments, Unimplemented if Supports is false, ResourceExhausted if the arena is too
  /// small, and those of the device. After an error, wait for the device before freeing memory:
  /// work may still be running.
  absl::Status Begin(std::span<const DeviceLayer> layers, const ExecutionContext& context = {});

  /// Waits for the device. If the results require it, repeats steps (with more damping, or in
  /// float64 if terms of a loss cancel) and waits again. Returns one result per layer, in their
  /// order, valid for the quantizer's lifetime. Errors: as Begin.
  absl::StatusOr<std::vector<DeviceResult>> Collect(const ExecutionContext& context = {});

 private:
  struct Layers;
  ComputeDevice& device_;
  int64_t arena_begin_;
  std::unique_ptr<Layers> layers_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_DEVICE_QUANTIZER_H_
