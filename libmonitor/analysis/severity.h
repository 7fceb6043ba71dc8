#ifndef PTQWATCH_ANALYSIS_SEVERITY_H_
#define PTQWATCH_ANALYSIS_SEVERITY_H_

#include <optional>
#include <string>
#include <vector>

#include "analysis/change.h"
#include "analysis/history.h"
#include "ptqwatch/verdict.h"

namespace ptqwatch::internal {

/// How far the cost of a quantizer exceeds its baseline, as a mean over snapshots.
struct Severity {
  double nats = 0;
  double low_nats = 0;  ///< 95 % interval
  double high_nats = 0;
  double expected_nats = 0;     ///< by the baseline, at the newest snapshot
  std::optional<double> ratio;  ///< absent if the baseline cannot be distinguished from zero
  double low_ratio = 0;
  double high_ratio = 0;
};

/// The severity of the series `name` over the change's tested snapshots; nullopt if it has no
/// baseline or no value there.
std::optional<Severity> SeverityOf(const History& history, const Change& change,
                                   const std::string& name);

/// How far the full-precision loss of the change's tested snapshots is below the loss of the last
/// snapshots before them, in nats; 0 unless both are known.
double LossGain(const History& history, const Change& change);

/// The series behind the higher level `since`, preceded by the combined errors and curvatures with
/// the sigmas of the `change` that was tested for.
std::vector<Evidence> EvidenceOf(const History& history, const Change& change, const Change& since);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_SEVERITY_H_
