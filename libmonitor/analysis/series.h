#ifndef PTQWATCH_ANALYSIS_SERIES_H_
#define PTQWATCH_ANALYSIS_SERIES_H_

#include <map>
#include <optional>
#include <string>

#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// What a series is evidence for.
enum class SeriesKind {
  kError,         ///< CE(W_hat) / CE(W) - 1 of a quantizer
  kCurvature,     ///< the Hessian's traces, and its curvature along a quantization error
  kDisplacement,  ///< ||W_hat - W||: explains, but alarms nobody
};

struct SeriesValue {
  SeriesKind kind = SeriesKind::kError;
  double value = 0;      ///< as measured; of kError the loss increase in nats
  double log_value = 0;  ///< what is compared: see ErrorLogarithm and log(value)
};

/// By name: "loss_delta_gptq3", "curvature_along_error_gptq3", "displacement_gptq3", "trace",
/// "weighted_trace".
using SeriesValues = std::map<std::string, SeriesValue>;

/// Everything in a report that can be compared from snapshot to snapshot. Values that were not
/// measured, are not finite or, of curvature, not positive are absent.
SeriesValues SeriesOf(const Report& report);

/// log(max(E, 0) + 0.001): proportional to the relative change where E is well above 0.1 %, and
/// bounded below that, where E is mostly its own error bar.
double ErrorLogarithm(double error_ratio);
/// Its inverse.
double ErrorRatio(double logarithm);

/// "3-bit GPTQ".
std::string QuantizerText(std::optional<QuantizationMethod> method, int bits);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_SERIES_H_
