#ifndef PTQWATCH_MONITOR_PLANNER_H_
#define PTQWATCH_MONITOR_PLANNER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "probes/probe_costs.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// What a plan can be made of: what the subject provides and the options allow.
struct PlanRange {
  int64_t probe_batches = 0;
  int64_t min_probe_batches = 1;  ///< with fewer there is no standard error worth the name
  int64_t calibration_batches = 0;
  int64_t min_calibration_batches = 1;  ///< with fewer, Gram matrices are far from full rank
  int64_t curvature_sequences = 0;      ///< 0: curvature is not measured
  int64_t min_curvature_sequences = 1;  ///< fewer only if these would take a minute
  bool one_loss_each = false;           ///< a sequence is one example with one loss
};

/// The plans that there are, and the seconds of work that they take.
struct PlanModel {
  /// Longer snapshots would be old when their reports come.
  static constexpr double kLongestSeconds = 60;

  PlanRange range;
  SnapshotCosts costs;

  /// Everything, at every snapshot.
  Plan Full() const;
  /// The least that gives a report; its error bars are wide.
  Plan Smallest() const;
  /// The largest plan whose snapshots take `seconds` in the mean. Halves batches until quantization
  /// takes 60 % of that; of the curvature batch it takes as many sequences as leave curvature in
  /// every third snapshot. `sequences` keeps a curvature batch that was chosen before: another one
  /// would be another series.
  Plan Fit(double seconds, std::optional<int64_t> sequences = {}) const;

  /// What is measured at every snapshot: the quantizers and more.
  double Quantization(const Plan& plan) const { return costs.EverySnapshot(plan); }
  /// Curvature, and what is measured with it; 0 without sequences.
  double Curvature(const Plan& plan) const { return costs.WithCurvature(plan); }
  /// A snapshot with curvature.
  double Whole(const Plan& plan) const { return Quantization(plan) + Curvature(plan); }
  /// A snapshot in the mean over those with curvature and without.
  double Mean(const Plan& plan) const;
  /// "probe 4 of 32 batches, calibration 2 of 16 batches, curvature on 8 of 64 sequences at every
  /// 3rd snapshot"
  std::string Describe(const Plan& plan) const;

 private:
  bool Halve(Plan& plan) const;
};

/// Keeps a run's plan fitting, from what its snapshots take. One thread at a time.
class Planner {
 public:
  /// `kept` is the plan of an earlier attempt of the run, which is taken over. `fixed`: everything
  /// is measured at every snapshot, whatever it takes.
  Planner(const PlanModel& model, std::optional<Plan> kept, bool fixed = false);

  /// Before the first snapshot: makes the plan for so many seconds a snapshot. A plan taken over is
  /// left.
  void Fit(double seconds);

  const Plan& plan() const { return plan_; }
  const PlanModel& model() const { return model_; }
  bool fixed() const { return fixed_; }
  /// Seconds of work of the present plan, over those of the full one.
  double Level() const;

  /// The plan of the next snapshot: without curvature unless that is due. The first one is measured
  /// with the smallest plan, unless the whole takes at most `soon` seconds.
  Plan Next(double soon);
  /// The plan of an additional snapshot while the learning rate decays: with curvature only if all
  /// of it takes at most `seconds`. It does not count towards `curvature_every`.
  Plan Additional(double seconds) const;
  /// The plan of a run's last snapshot, for which so many seconds are left: everything; else the
  /// present curvature batch with all other data; else nothing.
  std::optional<Plan> Last(double seconds) const;

  /// Takes what the last snapshot took, and what one may take in the mean. Changes a plan that took
  /// too much twice in a row, or much too little eight times, and returns what changed and why.
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
  bool curvature_put_off_ = false;  // by a small first snapshot
  int too_expensive_ = 0;           // snapshots in a row
  int too_cheap_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_PLANNER_H_
