#ifndef PTQWATCH_QUANTIZE_METHODS_H_
#define PTQWATCH_QUANTIZE_METHODS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "ptqwatch/quantizer.h"
#include "report/enum_names.h"

namespace ptqwatch::internal {

struct Layer;

/// The statistics of a layer's inputs that codes depend on. Any method measures losses with H.
enum class Statistics {
  kNone,
  kGramIfAny,  ///< Quantize runs without them, too
  kGram,
  kGramAndAbsSum,
  kGramAndAbsMax,
};

/// Method::flops of methods that look at one weight at a time: rounding, and losses.
double RoundingFlops(double rows, double cols, const QuantizerSpec& spec);
/// Of these, the losses that QuantizerSpec::baselines asks for.
double BaselineFlops(double rows, double cols, const QuantizerSpec& spec);

/// A quantization method. Its own file defines it; methods.cc lists it, at the position of its
/// value, and so does report/enum_names.cc with its names.
struct Method {
  int bits = 0;  ///< the only bit-width; 0: any
  /// Which fields of a spec decide the codes, beside bits and scale_dtype.
  bool grid = false;           ///< group_size, symmetric and clip: codes are of a grid
  bool factor = false;         ///< order, damp and min_tokens_ratio: H is factorised
  bool outliers = false;       ///< outlier_threshold
  bool channel_scale = false;  ///< the grid is of the weight times QuantizedWeight::channel_scale
  /// Without a grid, as reports have it: weights that share a scale, across rows; -1: a row.
  int group_size = 0;

  Statistics (*statistics)(const QuantizerSpec&) = [](auto&) { return Statistics::kNone; };
  /// With fewer calibration rows than this, or none, RTN stands in. Null: with any number the
  /// method runs.
  double (*min_tokens)(const QuantizerSpec& spec, int64_t inputs) = nullptr;
  /// What it holds beside codes, decoded weights, panels of a trace and the factor of H.
  int64_t (*bytes)(int64_t rows, int64_t cols, const QuantizerSpec& spec) = nullptr;
  /// With the losses that the spec asks for, a multiply-add as two.
  double (*flops)(double rows, double cols, const QuantizerSpec& spec) = RoundingFlops;
  /// Fills in everything but the column counts. `layer.h` is there if min_tokens is not null.
  absl::StatusOr<QuantizedWeight> (*quantize)(const Layer& layer,
                                              const ExecutionContext& context) = nullptr;
};

extern const Method kRtnMethod, kGptqMethod, kAwqMethod, kLlmInt8Method, kNf4Method;

/// RTN's for a value that no method has: Validate refuses it.
const Method& MethodOf(QuantizationMethod method);
inline const Method& MethodOf(const QuantizerSpec& spec) { return MethodOf(spec.method); }
inline Statistics StatisticsOf(const QuantizerSpec& spec) {
  return MethodOf(spec).statistics(spec);
}
/// Adds a method, which must outlive the process, and returns its value. Not thread-safe: call it
/// before any other thread uses a method.
QuantizationMethod AddMethod(const MethodName& name, const Method& method);

/// The fewest calibration rows with which RTN does not stand in.
double NeededTokens(const QuantizerSpec& spec, int64_t inputs);

/// What quantizing a [rows, cols] weight reserves, in bytes, the result included: all that it ever
/// holds, as if at once.
int64_t WorkingBytes(int64_t rows, int64_t cols, const QuantizerSpec& spec);
/// Of these, the factor of H and what makes it: reserved apart, since calls may share it.
int64_t FactorBytes(int64_t cols, const QuantizerSpec& spec);
/// Of these, the panels in which a trace is computed. The factor's are not there then.
int64_t TracePanelBytes(int64_t rows, int64_t cols);
/// Method::bytes of methods that fit a grid to the weight.
int64_t GridBytes(int64_t rows, int64_t cols, const QuantizerSpec& spec);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_QUANTIZE_METHODS_H_
