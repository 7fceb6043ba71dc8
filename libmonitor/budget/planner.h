#ifndef PTQWATCH_BUDGET_PLANNER_H_
#define PTQWATCH_BUDGET_PLANNER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "budget/probe_costs.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// Bounds of a plan: what the subject provides and the options allow.
struct PlanRange {
  int64_t probe_batches = 0;
  int64_t min_probe_batches = 1;  ///< fewer give no useful standard error
  int64_t calibration_batches = 0;
  int64_t min_calibration_batches = 1;  ///< with fewer, Gram matrices are far from full rank
  int64_t curvature_sequences = 0;      ///< 0: curvature is not measured
  int64_t min_curvature_sequences = 1;  ///< fewer only if these take over a minute
  bool one_loss_each = false;           ///< a sequence is one example with one loss
};

/// The possible plans, and their seconds of work.
struct PlanModel {
  /// The reports of longer snapshots would be outdated on arrival.
  static constexpr double kLongestSeconds = 60;

  PlanRange range;
  SnapshotCosts costs;

  /// Everything, at every snapshot.
  Plan Full() const;
  /// The smallest plan that gives a report; its error bars are wide.
  Plan Smallest() const;
  /// The plan without curvature and the measurements that go with it.
  Plan WithoutCurvature(Plan plan) const;
  /// The largest plan whose snapshots take `seconds` on average. Halves the batches until
  /// quantization takes 60 % of that, then picks as many curvature sequences as allow curvature in
  /// every third snapshot. `sequences` keeps a curvature batch chosen before, because another batch
  /// would start another series. The plan is WithSpareTime.
  Plan Fit(double seconds, std::optional<int64_t> sequences = {}) const;
  /// The plan with the further probe sets, and then with as many merges, as keep the whole within
  /// half of `seconds` on average.
  Plan WithSpareTime(Plan plan, double seconds) const;

  /// Seconds measured at every snapshot, for the quantizers and the like.
  double Quantization(const Plan& plan) const { return costs.EverySnapshot(plan); }
  /// Seconds for curvature and measurements that go with it; 0 without sequences.
  double Curvature(const Plan& plan) const { return costs.WithCurvature(plan); }
  /// Seconds of a snapshot with curvature.
  double Whole(const Plan& plan) const { return Quantization(plan) + Curvature(plan); }
  /// Mean seconds over snapshots with and without curvature.
  double Mean(const Plan& plan) const;
  /// "probe 4 of 32 batches, calibration 2 of 16 batches, curvature on 8 of 64 sequences at every
  /// 3rd snapshot, 2 of 5 merges, 3 of 3 further probe sets"
  std::string Describe(const Plan& plan) const;

 private:
  Plan FitData(double seconds, std::optional<int64_t> sequences) const;
  bool Halve(Plan& plan) const;
};

/// Adapts a run's plan to the measured costs of its snapshots. Not thread-safe.
class Planner {
 public:
  /// `kept` is the plan of an earlier attempt, which this run continues with. `fixed` measures
  /// everything at every snapshot, whatever the cost.
  Planner(const PlanModel& model, std::optional<Plan> kept, bool fixed = false);

  /// Before the first snapshot: fits the plan to `seconds` per snapshot. Of a plan kept from an
  /// earlier attempt, changes only the merges and further sets.
  void Fit(double seconds);

  const Plan& plan() const { return plan_; }
  const PlanModel& model() const { return model_; }
  bool fixed() const { return fixed_; }
  /// Work of the current plan divided by the work of the full one.
  double Level() const;

  /// The plan of the next snapshot; it has curvature only if curvature is due. The first snapshot
  /// uses the smallest plan, unless the current one takes at most `soon` seconds.
  Plan Next(double soon);
  /// The plan of an additional snapshot while the learning rate decays. It has curvature only if
  /// the whole takes at most `seconds`, and does not count towards `curvature_every`.
  Plan Additional(double seconds) const;
  /// The plan of a run's last snapshot if `seconds` are left: the full plan if it fits, else the
  /// current curvature batch with all other data, else none.
  std::optional<Plan> Last(double seconds) const;

  /// Takes the work of the last snapshot and the mean `seconds` allowed. Changes a plan that was
  /// too expensive twice in a row or much too cheap eight times in a row, and returns what changed
  /// and why.
  std::optional<std::string> Measured(const SnapshotWork& work, double seconds);

 private:
  bool first() const { return snapshots_ == 1 && !kept_; }

  const bool fixed_;
  PlanModel model_;
  Plan plan_;
  bool kept_ = false;
  bool sequences_chosen_ = false;
  int64_t snapshots_ = 0;
  int64_t since_curvature_ = 0;
  bool curvature_put_off_ = false;  // because the first snapshot was small
  int too_expensive_ = 0;           // in a row
  int too_cheap_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BUDGET_PLANNER_H_
