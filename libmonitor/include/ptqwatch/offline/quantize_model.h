#ifndef PTQWATCH_OFFLINE_QUANTIZE_MODEL_H_
#define PTQWATCH_OFFLINE_QUANTIZE_MODEL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "ptqwatch/quantizer.h"
#include "ptqwatch/report.h"
#include "ptqwatch/stored_size.h"

namespace ptqwatch {

class Subject;

/// A layer that QuantizeModel has just finished.
struct LayerProgress {
  int64_t layer = 0;      ///< its position: 1, 2, ...
  int64_t layers = 0;     ///< number of layers
  std::string_view name;  ///< valid during the call
  double seconds = 0;     ///< since the previous layer, including its share of the capture
};

struct ModelQuantizationOptions {
  QuantizerSpec spec = {};
  /// {glob over parameter names, spec}: a matching layer uses this spec instead of `spec`, even
  /// with another method or other bits. The first match wins. `of`, if given, names `spec`.
  std::vector<SpecOverride> overrides = {};
  LayerSelection layers = {};
  CalibrationMode calibration_mode = CalibrationMode::kOneShot;
  /// Like MonitorOptions::max_gram_bytes. 8 GiB suffices for a layer of 32,768 inputs.
  int64_t max_gram_bytes = int64_t{8} << 30;
  /// Called after each layer, in the order of processing, on the calling thread. Must not throw.
  std::function<void(const LayerProgress&)> progress = nullptr;
};

/// InvalidArgument naming the field and its value.
PTQWATCH_EXPORT absl::Status Validate(const ModelQuantizationOptions& options);

/// One weight of the model.
struct QuantizedLayer {
  std::string name;            ///< canonical parameter name
  std::vector<int64_t> shape;  ///< in the model: [out, in], [in, out], [O, C, kh, kw], ...
  /// The quantized matrix: [outputs, inputs], row-major. It is the transpose of a weight stored as
  /// [in, out], and [O, C * kh * kw] for a convolution.
  int64_t outputs = 0;
  int64_t inputs = 0;
  bool transposed = false;
  QuantizerSpec spec;        ///< the spec used for it
  int64_t tokens = 0;        ///< number of calibration rows in its statistics
  int64_t skipped_rows = 0;  ///< calibration rows left out because of NaN or infinity
  /// Has a status and no codes if the weight could not be quantized.
  QuantizedWeight weight;
};

struct ModelQuantization {
  std::vector<QuantizedLayer> layers;  ///< in the order of first use in the forward pass
  std::vector<SkippedLayer> skipped;   ///< all other parameters, with the reason
  int64_t parameters = 0;              ///< number of elements in the model
  int64_t covered_parameters = 0;      ///< number of elements in `layers`
  /// The part of `skipped` that a deployment would quantize. Absent: none.
  std::optional<UnseenWeights> unseen;
};

/// Quantizes a whole model without a monitor. Finds the weights that `subject`'s losses closure
/// multiplies with activations, calibrates on subject.calibration(), and quantizes each of them.
/// Selects the same layers and gives the same codes as a monitor with the same options.
/// @code
///   auto subject = ptqwatch::MakeModuleSubject(
///       model, {.replica = ..., .losses = ..., .calibration = batches});
///   auto result = ptqwatch::QuantizeModel(
///       *subject,
///       {.spec = {.method = ptqwatch::QuantizationMethod::kGptq, .bits = 4, .group_size = 64},
///        .overrides = {{"*.down.weight", {.bits = 8}}},
///        .calibration_mode = ptqwatch::CalibrationMode::kSequential});
///   if (!result.ok()) return result.status();
///   for (const ptqwatch::QuantizedLayer& layer : result->layers) Save(layer.name, layer.weight);
/// @endcode
/// Reads the live model once and does not change it. Opens `subject`, which serves one call. Not
/// thread-safe for the same subject. Forward passes use LibTorch's threads, all other work
/// context.threads. Never throws.
///
/// Cost: a few forward passes, then passes over the calibration data: one for each `max_gram_bytes`
/// of Gram matrices (one-shot), or one for each distinct layer input (sequential). Memory: twice
/// the model, the Gram matrices, and nine bytes for each covered weight of the result.
///
/// Errors: InvalidArgument (options, no calibration batches), FailedPrecondition (subject opened
/// before, closure, weights not finite, nothing to quantize), Cancelled, DeadlineExceeded,
/// ResourceExhausted (out of memory). A layer that cannot be quantized is not an error: the status
/// of its weight gives the reason.
PTQWATCH_EXPORT absl::StatusOr<ModelQuantization> QuantizeModel(
    Subject& subject, const ModelQuantizationOptions& options = {},
    const ExecutionContext& context = {});

/// The size of all parameters of the model: the quantized weights, and kUnquantizedBytes for each
/// element of the others. Bytes() is QuantizationReport::artifact_bytes of a monitor with the same
/// options. Cost: as StoredSizeOf of each layer.
PTQWATCH_EXPORT StoredSize StoredSizeOf(const ModelQuantization& model);

}  // namespace ptqwatch

#endif  // PTQWATCH_OFFLINE_QUANTIZE_MODEL_H_
