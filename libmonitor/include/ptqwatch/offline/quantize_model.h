#ifndef PTQWATCH_OFFLINE_QUANTIZE_MODEL_H_
#define PTQWATCH_OFFLINE_QUANTIZE_MODEL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "ptqwatch/quantizer.h"
#include "ptqwatch/report.h"

namespace ptqwatch {

class Subject;

/// A layer that QuantizeModel has just finished.
struct LayerProgress {
  int64_t layer = 0;   ///< 1, 2, ...
  int64_t layers = 0;  ///< how many there are
  std::string_view name;
  double seconds = 0;  ///< since the layer before it, its share of the capture included
};

struct ModelQuantizationOptions {
  QuantizerSpec spec = {};
  /// {glob over parameter names, spec}: layers that match use that spec instead of `spec`, whatever
  /// its method and bits. First match wins.
  std::vector<std::pair<std::string, QuantizerSpec>> overrides = {};
  LayerSelection layers = {};
  CalibrationMode calibration_mode = CalibrationMode::kOneShot;
  /// As MonitorOptions::max_gram_bytes; 8 GiB is enough for a layer of 32,768 inputs.
  int64_t max_gram_bytes = int64_t{8} << 30;
  /// Called after each layer on the calling thread, in the order of the work; must not throw.
  std::function<void(const LayerProgress&)> progress = nullptr;
};

/// InvalidArgument naming the field and its value.
absl::Status Validate(const ModelQuantizationOptions& options);

/// One weight of the model.
struct QuantizedLayer {
  std::string name;            ///< canonical parameter name
  std::vector<int64_t> shape;  ///< as the model has it: [out, in], [in, out], [O, C, kh, kw], ...
  /// The matrix that was quantized, [outputs, inputs] row-major. A weight stored [in, out] was
  /// transposed for it; one of more dimensions is the matrix that lies in memory, a convolution's
  /// [O, C * kh * kw].
  int64_t outputs = 0;
  int64_t inputs = 0;
  bool transposed = false;
  QuantizerSpec spec;        ///< what it was quantized with
  int64_t tokens = 0;        ///< calibration rows behind its statistics
  int64_t skipped_rows = 0;  ///< calibration rows left out for a NaN or infinity
  /// With a status and no codes where the weight could not be quantized.
  QuantizedWeight weight;
};

struct ModelQuantization {
  std::vector<QuantizedLayer> layers;  ///< in the order in which the forward pass uses them
  std::vector<SkippedLayer> skipped;   ///< all other parameters, and why
  int64_t parameters = 0;              ///< of the model
  int64_t covered_parameters = 0;      ///< in `layers`
};

/// Quantizes a whole model without a monitor: finds the weights that are multiplied with
/// activations in `subject`'s losses closure, calibrates on subject.calibration(), and quantizes
/// each. What counts as a layer, and what is left out, is what Monitor does; the codes are those a
/// monitor with the same options measures. The live model is only read, once: its weights are
/// copied into the replica that the subject builds. `subject` must be fresh, for BuildReplica is
/// called on it.
///
///   auto subject = ptqwatch::MakeModuleSubject(model, {.replica = ..., .losses = ...,
///                                                      .calibration = batches});
///   auto context = ptqwatch::ExecutionContext();
///   auto result = ptqwatch::QuantizeModel(
///       context, *subject,
///       {.spec = {.method = ptqwatch::QuantizationMethod::kGptq, .bits = 4, .group_size = 64},
///        .overrides = {{"*.down.weight", {.bits = 8}}},
///        .calibration_mode = ptqwatch::CalibrationMode::kSequential,
///        .progress = [](const ptqwatch::LayerProgress& p) {
///          std::cout << p.layer << "/" << p.layers << " " << p.name << "\n";
///        }});
///   if (!result.ok()) return result.status();
///   for (const ptqwatch::QuantizedLayer& layer : result->layers) Save(layer.name, layer.weight);
///   for (const ptqwatch::SkippedLayer& left : result->skipped) Warn(left.name, left.reason);
///
/// Cost: a few forward passes to set up; then, one-shot, one pass over the calibration data for
/// each `max_gram_bytes` of Gram matrices, and sequentially one for each distinct layer input.
/// Memory: twice the model for the replica, the Grams, and nine bytes a covered weight for the
/// result. Not thread-safe for one subject. Forward passes use LibTorch's threads, the rest
/// context.threads. Errors: InvalidArgument (options), FailedPrecondition (subject, closure,
/// nothing to quantize), Cancelled, DeadlineExceeded, ResourceExhausted. Bad weights are no error
/// but a status of their layer.
absl::StatusOr<ModelQuantization> QuantizeModel(Subject& subject,
                                                const ModelQuantizationOptions& options = {},
                                                const ExecutionContext& context = {});

}  // namespace ptqwatch

#endif  // PTQWATCH_OFFLINE_QUANTIZE_MODEL_H_
