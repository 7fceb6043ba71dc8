#ifndef PTQWATCH_BUDGET_PROBE_COSTS_H_
#define PTQWATCH_BUDGET_PROBE_COSTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// Seconds of work of a probe at one snapshot, as a function of the plan.
struct ProbeCost {
  std::string probe = {};
  bool with_curvature = false;  ///< runs only at snapshots that measure curvature
  /// If set, the seconds below are those of each of the plan's merges or further sets.
  int64_t Plan::*of_each = nullptr;
  int64_t most = 0;  ///< how many of these there are to measure
  double fixed = 0;
  double probe_batch = 0;  ///< per batch
  double calibration_batch = 0;
  double curvature_sequence = 0;

  double Seconds(const Plan& plan) const;
};

/// The monitor thread's work at one snapshot.
struct SnapshotWork {
  Plan plan = {};
  std::map<std::string, double, std::less<>> seconds = {};  ///< by probe
  bool cut_short = false;                                   ///< some of it would have taken longer
};

/// The costs of a run's probes: first their own estimates, then measured costs.
class SnapshotCosts {
 public:
  explicit SnapshotCosts(std::vector<ProbeCost> probes = {}) : probes_(std::move(probes)) {}

  /// Seconds of the probes that run at every snapshot.
  double EverySnapshot(const Plan& plan) const;
  /// Seconds of the probes that run with curvature; 0 if the plan has no curvature.
  double WithCurvature(const Plan& plan) const;
  /// The most that a plan can have of what a probe counts with ProbeCost::of_each.
  int64_t Most(int64_t Plan::*of_each) const;
  /// Corrects the cost of each probe halfway, on a logarithmic scale, towards the measured one. A
  /// cost that was unknown or much too small is replaced at once. Work that was cut short corrects
  /// only costs that are too small.
  void Learn(const SnapshotWork& work);

  const std::vector<ProbeCost>& probes() const { return probes_; }

 private:
  ProbeCost& Of(const std::string& probe);

  std::vector<ProbeCost> probes_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BUDGET_PROBE_COSTS_H_
