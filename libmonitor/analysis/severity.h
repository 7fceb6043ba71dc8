#ifndef PTQWATCH_ANALYSIS_SEVERITY_H_
#define PTQWATCH_ANALYSIS_SEVERITY_H_

#include <optional>
#include <string>
#include <vector>

#include "analysis/change.h"
#include "analysis/history.h"
#include "ptqwatch/verdict.h"

namespace ptqwatch::internal {

/// How much more a quantizer costs than its baseline predicts, as a mean over snapshots.
struct Severity {
  double nats = 0;
  double low_nats = 0;  ///< 95 % interval
  double high_nats = 0;
  double expected_nats = 0;     ///< by the baseline, at the newest snapshot
  std::optional<double> ratio;  ///< absent where the baseline cannot be told from zero
  double low_ratio = 0;
  double high_ratio = 0;
};

/// Of the series `name` over the change's tested snapshots; nullopt where it has no baseline or no
/// value there.
std::optional<Severity> SeverityOf(const History& history, const Change& change,
                                   const std::string& name);

/// By how much the full-precision loss of the change's tested snapshots is below that of the last
/// snapshots before, in nats; 0 where neither is known.
double LossGain(const History& history, const Change& change);

/// The series behind a change, those of all errors and of all curvature together first.
std::vector<Evidence> EvidenceOf(const History& history, const Change& change);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_SEVERITY_H_
