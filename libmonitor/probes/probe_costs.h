#ifndef PTQWATCH_PROBES_PROBE_COSTS_H_
#define PTQWATCH_PROBES_PROBE_COSTS_H_

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// Seconds that a probe works at a snapshot, by what the plan gives it to work with.
struct ProbeCost {
  std::string probe = {};
  bool with_curvature = false;  ///< works only at snapshots that measure curvature
  double fixed = 0;
  double probe_batch = 0;  ///< for each batch
  double calibration_batch = 0;
  double curvature_sequence = 0;

  double Seconds(const Plan& plan) const;
};

/// What the monitor thread worked at a snapshot.
struct SnapshotWork {
  Plan plan = {};
  std::map<std::string, double, std::less<>> seconds = {};  ///< by probe
};

/// What the probes of a run cost: at first what each knows of itself, then what it has taken.
class SnapshotCosts {
 public:
  explicit SnapshotCosts(std::vector<ProbeCost> probes = {}) : probes_(std::move(probes)) {}

  /// Seconds of the probes that work at every snapshot.
  double EverySnapshot(const Plan& plan) const;
  /// Seconds of those that work with curvature; 0 if the plan has none.
  double WithCurvature(const Plan& plan) const;
  /// Corrects the cost of each probe by what it took: half of the way, as ratios go. A cost that
  /// was not known, or was much too small, becomes what was measured at once.
  void Learn(const SnapshotWork& work);

  const std::vector<ProbeCost>& probes() const { return probes_; }

 private:
  ProbeCost& Of(const std::string& probe);

  std::vector<ProbeCost> probes_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_PROBE_COSTS_H_
