#ifndef PTQWATCH_ANALYSIS_SERIES_H_
#define PTQWATCH_ANALYSIS_SERIES_H_

#include <map>
#include <optional>
#include <string>

#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// The kind of evidence in a series.
enum class SeriesKind {
  kError,  ///< CE(W_hat) / CE(W) - 1 of a quantizer
  /// The Hessian's traces and its curvature along a quantization error, also by losses alone.
  kCurvature,
  kDisplacement,  ///< ||W_hat - W||: explains a rise, but raises no alarm
};

struct SeriesValue {
  SeriesKind kind = SeriesKind::kError;
  double value = 0;      ///< as measured; for kError the loss increase in nats
  double log_value = 0;  ///< the number to compare: ErrorLogarithm or log(value)
};

/// By name: "loss_delta_gptq3", "curvature_along_error_gptq3", "critical_sharpness_gptq3",
/// "displacement_gptq3", "trace", "weighted_trace", "noise_weighted_trace".
using SeriesValues = std::map<std::string, SeriesValue>;

/// Returns all values of a report that are comparable between snapshots. Omits values that were not
/// measured or are not finite, and curvature that is not positive.
SeriesValues SeriesOf(const Report& report);

/// The series of the watched quantizer's loss increase.
struct WatchedSeries {
  std::string name;
  SeriesValue first;                  ///< on the first set of probe batches, as in SeriesOf
  std::optional<SeriesValue> pooled;  ///< on all sets (Report::pooled)
};
/// `values` are SeriesOf the report. nullopt if its loss increase was not measured.
std::optional<WatchedSeries> WatchedSeriesOf(const Report& report, const SeriesValues& values);

/// log(max(E, 0) + 0.001): proportional to the relative change if E is well above 0.1 %, and
/// bounded below that, because a smaller E is mostly measurement error.
double ErrorLogarithm(double error_ratio);
/// Inverse of ErrorLogarithm.
double ErrorRatio(double logarithm);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_SERIES_H_
