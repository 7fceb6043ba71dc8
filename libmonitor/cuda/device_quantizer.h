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

/// A weight in a device's memory, and how it is to be quantized.
struct DeviceLayer {
  const float* weight = nullptr;  ///< [rows, cols] row-major
  int64_t rows = 0;
  int64_t cols = 0;
  const DeviceGram* gram = nullptr;  ///< finished; may be null where Quantize's statistics may
  QuantizerSpec spec = {};
  /// Where the results go, [rows, cols]. Where null, they are in the quantizer's memory.
  float* dequantized = nullptr;
  uint8_t* codes = nullptr;
};

/// The outcome for one layer. Pointers are the device's; they are null where the status means that
/// there are no codes, and where the method has no such thing.
struct DeviceResult {
  /// All but codes, scale, zero, dequantized, order and channel_scale.
  QuantizedWeight numbers;
  int64_t tokens = 0;
  /// |W_hat - W|^2, summed in float64; absent without codes.
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

/// Quantizes weights on a device: the methods of ptqwatch/quantizer.h, with the same results but
/// for rounding. Fewer than 0.3 % of the codes and 1e-3 of a loss differ.
///
/// Kernels of ours give a layer the same bits whatever it is quantized together with. On a GPU
/// cuBLAS may add up in another order for a batch, and how many layers go together depends on what
/// is left of the arena: with another size or other company, bits may differ by as much as above.
///
/// duplicate_columns compares sums exactly. On a GPU, with more than 256 inputs, those of different
/// panels of the Gram matrix may differ in their last bits: it is a lower bound there.
///
/// Layers of one call that agree in shape and in all of the spec but the grid go through the
/// kernels together, up to kMaxBatch, if memory allows it and their inputs are either all the same
/// or all different. So one weight at 3 and 4 bits, or weights with the same inputs, share one
/// factor.
///
/// Work is cut into pieces that by arithmetic take less than about 1 ms on an H100. Longer may be
/// cuSOLVER's own; from about 16384 inputs on the passes over H; and from about 128 M weights on,
/// such as 16384 x 8192, the passes over a weight, each of which is one launch.
///
/// Not there: AWQ with ClipSearch::kMse, and GPTQ with more than kMostFactorInputs inputs.
class DeviceQuantizer {
 public:
  /// `device` must outlive this. What is taken from its arena is returned by the destructor, in
  /// reverse order among quantizers and other users.
  explicit DeviceQuantizer(ComputeDevice& device);
  ~DeviceQuantizer();
  DeviceQuantizer(const DeviceQuantizer&) = delete;
  DeviceQuantizer& operator=(const DeviceQuantizer&) = delete;

  static bool Supports(const QuantizerSpec& spec) {
    return spec.clip == ClipSearch::kNone || spec.method != QuantizationMethod::kAwq;
  }
  /// The same for a weight with that many columns.
  static bool Supports(const QuantizerSpec& spec, int64_t cols) {
    return Supports(spec) &&
           (spec.method != QuantizationMethod::kGptq || cols <= kMostFactorInputs);
  }

  /// What Begin and Collect take from the arena at least, in bytes. With up to kMaxBatch times as
  /// much, layers go together.
  static absl::StatusOr<int64_t> WorkingBytes(ComputeDevice& device,
                                              std::span<const DeviceLayer> layers);

  /// Puts the work into the device's queue; does not wait. Once for each quantizer. Weights and
  /// second moments must not change until Collect has returned. Errors: as Quantize;
  /// FailedPrecondition for second moments that are not finished, Unimplemented where Supports is
  /// false, ResourceExhausted where the arena is too small, and those of the device. After an error
  /// work may still be under way: wait for the device before memory is freed.
  absl::Status Begin(std::span<const DeviceLayer> layers, const ExecutionContext& context = {});

  /// Waits for the device, does what could not be known before (more damping, float64 where terms
  /// of a loss cancel) and waits again where there was such a thing. One result for each layer, in
  /// their order; they are valid as long as this. Errors: as Begin.
  absl::StatusOr<std::vector<DeviceResult>> Collect(const ExecutionContext& context = {});

 private:
  struct Layers;
  ComputeDevice& device_;
  int64_t arena_begin_;
  std::unique_ptr<Layers> layers_;
};

/// Waits, and copies a result to the host.
absl::StatusOr<QuantizedWeight> CopyToHost(ComputeDevice& device, const DeviceResult& result);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_DEVICE_QUANTIZER_H_
