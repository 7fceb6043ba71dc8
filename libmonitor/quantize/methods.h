#ifndef PTQWATCH_QUANTIZE_METHODS_H_
#define PTQWATCH_QUANTIZE_METHODS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "ptqwatch/quantizer.h"
#include "report/enum_names.h"

namespace ptqwatch::internal {

struct Layer;

/// The statistics of a layer's inputs that the codes depend on. Losses need H with any method.
enum class Statistics {
  kNone,
  kGramIfAny,  ///< Quantize also runs without them
  kGram,
  kGramAndAbsSum,
  kGramAndAbsMax,
};

/// Method::flops of methods that quantize each weight independently: rounding, and losses.
double RoundingFlops(double rows, double cols, const QuantizerSpec& spec);
/// The part of RoundingFlops for the losses that QuantizerSpec::baselines asks for.
double BaselineFlops(double rows, double cols, const QuantizerSpec& spec);

/// A quantization method, defined in a file of its own. methods.cc lists it, in the order of
/// QuantizationMethod, and report/enum_names.cc lists its names.
struct Method {
  int bits = 0;  ///< the only bit-width; 0: any
  /// The fields of a spec that decide the codes, beside bits and scale_dtype.
  bool grid = false;           ///< group_size, symmetric and clip: codes are on a grid
  bool formats = false;        ///< format, scale_rule, group_rows and rotation
  bool factor = false;         ///< order, damp and min_tokens_ratio: H is factorised
  bool outliers = false;       ///< outlier_threshold
  bool channel_scale = false;  ///< the grid is for the weight times QuantizedWeight::channel_scale
  /// Without a grid, the group size in reports: weights that share a scale, across rows; -1: a row.
  int group_size = 0;
  /// Whether a weight that is not finite gives kUnsupported, so that it need not be searched for
  /// first: without statistics, clipping and rotation.
  bool finds_non_finite = false;

  Statistics (*statistics)(const QuantizerSpec&) = [](auto&) { return Statistics::kNone; };
  /// The fewest calibration rows. With fewer rows, or without any, RTN replaces the method. Null:
  /// no minimum.
  double (*min_tokens)(const QuantizerSpec& spec, int64_t inputs) = nullptr;
  /// Memory beside codes, decoded weights, the panels of a trace and the factor of H.
  int64_t (*bytes)(int64_t rows, int64_t cols, const QuantizerSpec& spec) = nullptr;
  /// Includes the losses that the spec asks for; a multiply-add counts as two.
  double (*flops)(double rows, double cols, const QuantizerSpec& spec) = RoundingFlops;
  /// Fills everything but the column counts. If min_tokens is not null, `layer.h` has a value.
  absl::StatusOr<QuantizedWeight> (*quantize)(const Layer& layer,
                                              const ExecutionContext& context) = nullptr;
};

extern const Method kRtnMethod, kGptqMethod, kAwqMethod, kLlmInt8Method, kNf4Method;

/// Returns the method; for an invalid value, which Validate refuses, that is RTN.
const Method& MethodOf(QuantizationMethod method);
inline const Method& MethodOf(const QuantizerSpec& spec) { return MethodOf(spec.method); }
inline Statistics StatisticsOf(const QuantizerSpec& spec) {
  return MethodOf(spec).statistics(spec);
}
/// Adds a method, which must outlive the process, and returns its value. Not thread-safe: call it
/// before any other thread uses a method.
QuantizationMethod AddMethod(const MethodName& name, const Method& method);

/// The fewest calibration rows with which the method itself runs and is not replaced by RTN.
double NeededTokens(const QuantizerSpec& spec, int64_t inputs);

/// Bytes to reserve for quantizing a [rows, cols] weight, including the result: the sum of all
/// buffers, as if they existed at once.
int64_t WorkingBytes(int64_t rows, int64_t cols, const QuantizerSpec& spec);
/// The part of WorkingBytes for the factor of H and its computation, reserved separately because
/// calls may share the factor.
int64_t FactorBytes(int64_t cols, const QuantizerSpec& spec);
/// The part of WorkingBytes for the panels of a trace, which do not exist at the same time as the
/// panels of the factor.
int64_t TracePanelBytes(int64_t rows, int64_t cols);
/// Method::bytes of methods that fit a grid to the weight.
int64_t GridBytes(int64_t rows, int64_t cols, const QuantizerSpec& spec);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_METHODS_H_
