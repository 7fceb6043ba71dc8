#ifndef PTQWATCH_MONITOR_PLANNER_H_
#define PTQWATCH_MONITOR_PLANNER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// What a plan can be made of: what the subject provides and the options allow.
struct PlanRange {
  int64_t quantizers = 0;
  int64_t probe_batches = 0;
  int64_t min_probe_batches = 1;  ///< with fewer there is no standard error worth the name
  int64_t calibration_batches = 0;
  int64_t min_calibration_batches = 1;  ///< with fewer, Gram matrices are far from full rank
  int64_t curvature_sequences = 0;      ///< 0: curvature is not measured
  int64_t min_curvature_sequences = 1;  ///< fewer only where these would take a minute
  bool one_loss_each = false;           ///< a sequence is one example with one loss
};

/// Seconds that the monitor thread works for the parts of a snapshot.
struct SnapshotCosts {
  double probe_batch = 0;         ///< one evaluation of one probe batch
  double calibration_batch = 0;   ///< one evaluation, with its share of the Gram matrices
  double quantize = 0;            ///< all quantizers, without either
  double curvature_fixed = 0;     ///< all of curvature, whatever its batch ...
  double curvature_sequence = 0;  ///< ... and for each of its sequences
};

/// What a snapshot took, in seconds of work, and what it was measured with.
struct SnapshotWork {
  Plan plan = {};
  double quantization = 0;
  std::optional<double> curvature = {};
};

/// Everything, at every snapshot.
Plan FullPlan(const PlanRange& range);
/// The least that gives a report; its error bars are wide.
Plan SmallestPlan(const PlanRange& range);
double QuantizationSeconds(const Plan& plan, const PlanRange& range, const SnapshotCosts& costs);
double CurvatureSeconds(const Plan& plan, const SnapshotCosts& costs);
/// Seconds a snapshot in the mean, curvature included.
double MeanSeconds(const Plan& plan, const PlanRange& range, const SnapshotCosts& costs);

/// The largest plan whose snapshots take `seconds` in the mean. Halves batches until quantization
/// takes 60 % of that; of the curvature batch it takes as many sequences as leave curvature in
/// every third snapshot. `sequences` keeps a curvature batch that was chosen before: another one
/// would be another series.
Plan FitPlan(const PlanRange& range, const SnapshotCosts& costs, double seconds,
             std::optional<int64_t> sequences = {});

/// Seconds of work that a snapshot may take in the mean, where one is due every `interval` seconds
/// (0: not known yet), and `long_run_share` of the time is for work. `rests`: as of the governor.
double AllowedSeconds(bool rests, double long_run_share, double interval);

/// "probe 4 of 32 batches, calibration 2 of 16 batches, curvature on 8 sequences at every 3rd
/// snapshot"
std::string DescribePlan(const Plan& plan, const PlanRange& range);

/// Keeps a run's plan fitting, from what its snapshots take. One thread at a time.
class Planner {
 public:
  /// `kept` is the plan of an earlier attempt of the run, which is taken over.
  Planner(const PlanRange& range, const SnapshotCosts& costs, std::optional<Plan> kept);

  /// Before the first snapshot, and whenever what a snapshot may take has changed for good: makes
  /// the plan anew. A plan taken over is left.
  void Fit(double seconds);

  const Plan& plan() const { return plan_; }
  /// Seconds of work of the present plan, over those of the full one.
  double Level() const;
  const PlanRange& range() const { return range_; }
  const SnapshotCosts& costs() const { return costs_; }

  /// The plan of the next snapshot: without curvature where that is not due. The first one is
  /// measured with the smallest plan, unless the whole takes at most `soon` seconds.
  Plan Next(double soon);

  /// The plan of an additional snapshot while the learning rate decays: with curvature only where
  /// all of it takes at most `seconds`. It does not count towards `curvature_every`.
  Plan Additional(double seconds) const;

  /// The plan of a run's last snapshot, for which so many seconds are left: everything; else the
  /// present curvature batch with all other data; else nothing, where that does not fit either.
  std::optional<Plan> Last(double seconds) const;

  /// Takes what the last snapshot took, and what one may take in the mean. Returns what changed,
  /// and why, where the plan had to.
  std::optional<std::string> Measured(const SnapshotWork& work, double seconds);

 private:
  void Learn(const SnapshotWork& work);

  const PlanRange range_;
  SnapshotCosts costs_;
  Plan plan_;
  bool kept_ = false;
  bool sequences_chosen_ = false;
  int64_t snapshots_ = 0;
  int64_t since_curvature_ = 0;
  bool curvature_put_off_ = false;  // by a small first snapshot
  int too_expensive_ = 0;
  int too_cheap_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_PLANNER_H_
