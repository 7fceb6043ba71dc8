#include "budget/probe_costs.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace ptqwatch::internal {
namespace {

// An estimate too small by more than this factor is replaced, not corrected halfway.
constexpr double kNoEstimate = 16;

double Real(int64_t value) { return static_cast<double>(value); }

}  // namespace

double ProbeCost::Seconds(const Plan& plan) const {
  const double seconds = fixed + Real(plan.probe_batches) * probe_batch +
                         Real(plan.calibration_batches) * calibration_batch +
                         Real(plan.curvature_sequences) * curvature_sequence;
  return of_each != nullptr ? Real(plan.*of_each) * seconds : seconds;
}

double SnapshotCosts::EverySnapshot(const Plan& plan) const {
  double seconds = 0;
  for (const ProbeCost& cost : probes_) {
    if (!cost.with_curvature) seconds += cost.Seconds(plan);
  }
  return seconds;
}

double SnapshotCosts::WithCurvature(const Plan& plan) const {
  if (plan.curvature_sequences == 0) return 0;
  double seconds = 0;
  for (const ProbeCost& cost : probes_) {
    if (cost.with_curvature) seconds += cost.Seconds(plan);
  }
  return seconds;
}

int64_t SnapshotCosts::Most(int64_t Plan::*of_each) const {
  int64_t most = 0;
  for (const ProbeCost& cost : probes_) {
    if (cost.of_each == of_each) most += cost.most;
  }
  return most;
}

ProbeCost& SnapshotCosts::Of(const std::string& probe) {
  const auto found = std::find_if(probes_.begin(), probes_.end(),
                                  [&](const ProbeCost& cost) { return cost.probe == probe; });
  return found != probes_.end() ? *found : probes_.emplace_back(ProbeCost{.probe = probe});
}

void SnapshotCosts::Learn(const SnapshotWork& work) {
  for (const auto& [probe, seconds] : work.seconds) {
    ProbeCost& cost = Of(probe);
    if (cost.of_each != nullptr && work.plan.*cost.of_each == 0) continue;
    if (work.plan.curvature_sequences == 0) cost.with_curvature = false;
    const double expected = cost.Seconds(work.plan);
    if (work.cut_short && seconds <= expected) continue;
    if (expected <= 0) {
      cost.fixed = seconds;
      continue;
    }
    const double ratio = std::max(seconds, 1e-9) / expected;
    const double scale = ratio > kNoEstimate ? ratio : std::sqrt(ratio);
    cost.fixed *= scale;
    cost.probe_batch *= scale;
    cost.calibration_batch *= scale;
    cost.curvature_sequence *= scale;
  }
}

}  // namespace ptqwatch::internal
