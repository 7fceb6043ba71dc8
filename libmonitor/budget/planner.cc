#include "budget/planner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr int64_t kPlenty = 2;
constexpr double kQuantizationShare = 0.6;
constexpr double kLeastCurvatureShare = 0.3;
constexpr double kPreferredCurvatureEvery = 3;
// A snapshot that takes up to twice the mean delays no snapshot but the next.
constexpr double kLongestSnapshot = 1.8;
constexpr double kMostCurvatureEvery = 50;
// Share of the time that a plan with merges or further probe sets may take. The rest is for
// additional snapshots and jobs.
constexpr double kShareWithExtras = 0.5;
// A plan is kept while its cost is between these multiples of the time allowed.
constexpr double kTooExpensive = 1.5;
constexpr int kTooExpensiveInARow = 2;
constexpr double kTooCheap = 0.25;
constexpr int kTooCheapInARow = 8;
// Share of Finish's waiting time. Costs are CPU seconds, and other threads may get half of the
// core.
constexpr double kShareOfWait = 1.0 / 3;

double ToReal(int64_t value) { return static_cast<double>(value); }

int64_t HalfOf(int64_t value, int64_t least) { return std::max(least, (value + 1) / 2); }

std::string Ordinal(int64_t n) {
  const bool teen = n % 100 >= 11 && n % 100 <= 13;
  return StrCat(n, teen          ? "th"
                   : n % 10 == 1 ? "st"
                   : n % 10 == 2 ? "nd"
                   : n % 10 == 3 ? "rd"
                                 : "th");
}

}  // namespace

Plan PlanModel::Full() const {
  return {.probe_batches = range.probe_batches,
          .calibration_batches = range.calibration_batches,
          .curvature_sequences = range.curvature_sequences,
          .curvature_every = range.curvature_sequences > 0 ? 1 : 0,
          .merges = costs.Most(&Plan::merges),
          .further_probe_sets = costs.Most(&Plan::further_probe_sets)};
}

Plan PlanModel::Smallest() const {
  return {
      .probe_batches = std::min(range.min_probe_batches, range.probe_batches),
      .calibration_batches = std::min(range.min_calibration_batches, range.calibration_batches)};
}

Plan PlanModel::WithoutCurvature(Plan plan) const {
  plan.curvature_sequences = 0;
  if (range.curvature_sequences > 0) plan.merges = 0;
  return plan;
}

double PlanModel::Mean(const Plan& plan) const {
  return Quantization(plan) + Curvature(plan) / ToReal(std::max<int64_t>(1, plan.curvature_every));
}

// Halves calibration data first if it exceeds the needs of its Gram matrices: more of it changes
// the codes little, while more probe batches make the comparison more precise. False if nothing is
// left to halve.
bool PlanModel::Halve(Plan& plan) const {
  const Plan least = Smallest();
  const bool probe = plan.probe_batches > least.probe_batches;
  const bool calibration = plan.calibration_batches > least.calibration_batches;
  const bool plenty = plan.calibration_batches > kPlenty * least.calibration_batches;
  const bool costlier = Quantization({.calibration_batches = plan.calibration_batches}) >
                        Quantization({.probe_batches = plan.probe_batches});
  if (calibration && (plenty || costlier || !probe)) {
    plan.calibration_batches = HalfOf(plan.calibration_batches, least.calibration_batches);
  } else if (probe) {
    plan.probe_batches = HalfOf(plan.probe_batches, least.probe_batches);
  }
  return probe || calibration;
}

Plan PlanModel::Fit(double seconds, std::optional<int64_t> sequences) const {
  return WithSpareTime(FitData(seconds, sequences), seconds);
}

Plan PlanModel::WithSpareTime(Plan plan, double seconds) const {
  const auto fits = [&] { return Mean(plan) <= kShareWithExtras * seconds; };
  plan.merges = 0;
  // Fewer sets than all would be of no use.
  plan.further_probe_sets = costs.Most(&Plan::further_probe_sets);
  if (!fits()) plan.further_probe_sets = 0;
  plan.merges = costs.Most(&Plan::merges);
  while (plan.merges > 0 && !fits()) --plan.merges;
  return plan;
}

Plan PlanModel::FitData(double seconds, std::optional<int64_t> sequences) const {
  Plan plan = Full();
  plan.merges = plan.further_probe_sets = 0;
  if (sequences) plan.curvature_sequences = *sequences;
  if (Mean(plan) <= seconds) return plan;
  const bool curvature = plan.curvature_sequences > 0;
  while (Quantization(plan) > (curvature ? kQuantizationShare : 1) * seconds && Halve(plan)) {
  }
  if (!curvature) return plan;
  const double quantization = Quantization(plan);
  const double rest = std::max(seconds - quantization, kLeastCurvatureShare * seconds);
  if (!sequences) {
    const double longest = std::max(
        rest, std::min(kPreferredCurvatureEvery * rest, kLongestSnapshot * seconds - quantization));
    int64_t least = std::min(range.min_curvature_sequences, range.curvature_sequences);
    if (Curvature({.curvature_sequences = least}) > kLongestSeconds) least = 1;
    while (plan.curvature_sequences > least && Curvature(plan) > longest) {
      plan.curvature_sequences = HalfOf(plan.curvature_sequences, least);
    }
  }
  plan.curvature_every =
      static_cast<int64_t>(std::clamp(std::ceil(Curvature(plan) / rest), 1.0, kMostCurvatureEvery));
  return plan;
}

std::string PlanModel::Describe(const Plan& plan) const {
  std::string text =
      StrCat("probe ", plan.probe_batches, " of ", range.probe_batches, " batches, calibration ",
             plan.calibration_batches, " of ", range.calibration_batches, " batches");
  if (plan.curvature_sequences == 0) {
    text += ", no curvature";
  } else {
    text += StrCat(", curvature on ", plan.curvature_sequences, " of ", range.curvature_sequences,
                   range.one_loss_each ? " examples" : " sequences", " at every ",
                   plan.curvature_every > 1 ? Ordinal(plan.curvature_every) + " " : "", "snapshot");
  }
  const int64_t merges = costs.Most(&Plan::merges);
  const int64_t sets = costs.Most(&Plan::further_probe_sets);
  if (merges > 0) text += StrCat(", ", plan.merges, " of ", merges, " merges");
  if (sets > 0) {
    text += StrCat(", ", plan.further_probe_sets, " of ", sets, " further probe sets");
  }
  return text;
}

Planner::Planner(const PlanModel& model, std::optional<Plan> kept, bool fixed)
    : fixed_(fixed), model_(model), plan_(model.Full()) {
  if (!kept || fixed) return;
  // The subject may offer less than in the earlier attempt.
  const PlanRange& range = model.range;
  plan_.probe_batches = std::clamp<int64_t>(kept->probe_batches, 1, range.probe_batches);
  plan_.calibration_batches =
      std::clamp<int64_t>(kept->calibration_batches, 1, range.calibration_batches);
  if (kept->curvature_sequences > 0 && kept->curvature_sequences <= range.curvature_sequences) {
    plan_.curvature_sequences = kept->curvature_sequences;
    plan_.curvature_every = std::max<int64_t>(1, kept->curvature_every);
    sequences_chosen_ = true;
  }
  plan_.merges = plan_.further_probe_sets = 0;
  kept_ = true;
}

void Planner::Fit(double seconds) {
  if (fixed_) return;
  plan_ = kept_ ? model_.WithSpareTime(plan_, seconds)
                : model_.Fit(seconds, sequences_chosen_ ? std::optional(plan_.curvature_sequences)
                                                        : std::nullopt);
}

double Planner::Level() const {
  const double all = model_.Mean(model_.Full());
  return all > 0 ? model_.Mean(plan_) / all : 1;
}

Plan Planner::Next(double soon) {
  if (fixed_) return plan_;
  ++snapshots_;
  Plan next = plan_;
  if (snapshots_ == 1) next.merges = 0;  // of a single snapshot there are none
  if (first() && model_.Whole(next) > soon) {
    curvature_put_off_ = true;
    return model_.Smallest();
  }
  bool due = snapshots_ == 1 || ++since_curvature_ >= plan_.curvature_every;
  // The second snapshot measures the curvature that the first omitted, unless that would delay the
  // third.
  if (std::exchange(curvature_put_off_, false)) {
    due = ToReal(plan_.curvature_every) <= kPreferredCurvatureEvery;
  }
  if (!due || plan_.curvature_sequences == 0) {
    return model_.WithoutCurvature(next);
  }
  since_curvature_ = 0;
  // The first snapshot shows the speed of the machine, so the number of sequences may still change.
  sequences_chosen_ = sequences_chosen_ || snapshots_ > 1;
  return next;
}

Plan Planner::Additional(double seconds) const {
  Plan plan = plan_;
  if (fixed_) return plan;
  plan.merges = 0;  // it enters no average
  return model_.Whole(plan) > seconds ? model_.WithoutCurvature(plan) : plan;
}

std::optional<Plan> Planner::Last(double seconds) const {
  Plan plan = model_.Full();
  const auto fits = [&] { return model_.Whole(plan) <= kShareOfWait * seconds; };
  if (fixed_ || fits()) return plan;
  plan.curvature_sequences = plan_.curvature_sequences;
  plan.merges = plan_.merges;
  plan.further_probe_sets = plan_.further_probe_sets;
  return fits() ? std::optional(plan) : std::nullopt;
}

std::optional<std::string> Planner::Measured(const SnapshotWork& work, double seconds) {
  if (fixed_) return std::nullopt;
  model_.costs.Learn(work);
  const double mean = model_.Mean(plan_);
  too_expensive_ = mean > kTooExpensive * seconds ? too_expensive_ + 1 : 0;
  too_cheap_ = mean < kTooCheap * seconds && !work.cut_short ? too_cheap_ + 1 : 0;
  // The costs are first known after the first snapshot.
  if (!first() && too_expensive_ < kTooExpensiveInARow && too_cheap_ < kTooCheapInARow) {
    return std::nullopt;
  }
  too_expensive_ = too_cheap_ = 0;
  kept_ = false;
  // A batch on which curvature does not end in time would give a series without numbers.
  if (work.cut_short && work.plan.curvature_sequences > 0) sequences_chosen_ = false;
  const Plan before = plan_;
  Fit(seconds);
  if (plan_ == before) return std::nullopt;
  return StrFormat(
      "%s: a snapshot takes %.2g s of work on average and may take %.2g s (before: %s)",
      model_.Describe(plan_), model_.Mean(plan_), seconds, model_.Describe(before));
}

}  // namespace ptqwatch::internal
