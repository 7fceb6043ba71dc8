#include "monitor/planner.h"

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
// A snapshot that takes twice the mean still lets the next but one be taken in time.
constexpr double kLongestSnapshot = 1.8;
constexpr int64_t kMostCurvatureEvery = 50;
// A plan is kept while what it takes is between these multiples of what it may take, and dropped
// when that was so for several snapshots in a row.
constexpr double kTooExpensive = 1.5;
constexpr int kTooExpensiveInARow = 2;
constexpr double kTooCheap = 0.25;
constexpr int kTooCheapInARow = 8;
// Of the time between two snapshots, where a core is spare.
constexpr double kShareOfInterval = 0.9;
constexpr double kShortestInterval = 2;
// What is rarer than this may take no less, and what is dearer would be old when it comes.
constexpr double kShortestIntervalWithRests = 60;
constexpr double kMostSeconds = 60;
// Of the time that Finish waits. Costs are CPU seconds, and others may have half of the core.
constexpr double kShareOfWait = 1.0 / 3;

int64_t HalfOf(int64_t value) { return (value + 1) / 2; }

std::string Ordinal(int64_t n) {
  const bool teen = n % 100 >= 11 && n % 100 <= 13;
  return StrCat(n, teen          ? "th"
                   : n % 10 == 1 ? "st"
                   : n % 10 == 2 ? "nd"
                   : n % 10 == 3 ? "rd"
                                 : "th");
}

// A cost between what was expected and what was measured.
double Blend(double expected, double measured) {
  return std::sqrt(expected * std::max(measured, 1e-9));
}

// Halves batches until quantization takes `seconds` or no fewer are left. Calibration data beyond
// what its Gram matrices need goes first: more of it changes the codes little, more probe batches
// make the comparison more precise.
void ReduceBatches(const PlanRange& range, const SnapshotCosts& costs, double seconds, Plan& plan) {
  const Plan smallest = SmallestPlan(range);
  const auto halve = [](int64_t& batches, int64_t least) {
    batches = std::max(least, HalfOf(batches));
  };
  while (QuantizationSeconds(plan, range, costs) > seconds) {
    const bool fewer_probe = plan.probe_batches > smallest.probe_batches;
    const bool fewer_calibration = plan.calibration_batches > smallest.calibration_batches;
    if (!fewer_probe && !fewer_calibration) return;
    const bool plenty = plan.calibration_batches > kPlenty * smallest.calibration_batches;
    const double probe =
        static_cast<double>(plan.probe_batches * (range.quantizers + 1)) * costs.probe_batch;
    const double calibration =
        static_cast<double>(plan.calibration_batches) * costs.calibration_batch;
    if (fewer_calibration && (plenty || !fewer_probe || calibration > probe)) {
      halve(plan.calibration_batches, smallest.calibration_batches);
    } else {
      halve(plan.probe_batches, smallest.probe_batches);
    }
  }
}

}  // namespace

Plan FullPlan(const PlanRange& range) {
  return {.probe_batches = range.probe_batches,
          .calibration_batches = range.calibration_batches,
          .curvature_sequences = range.curvature_sequences,
          .curvature_every = range.curvature_sequences > 0 ? 1 : 0};
}

Plan SmallestPlan(const PlanRange& range) {
  return {
      .probe_batches = std::min(range.min_probe_batches, range.probe_batches),
      .calibration_batches = std::min(range.min_calibration_batches, range.calibration_batches)};
}

double QuantizationSeconds(const Plan& plan, const PlanRange& range, const SnapshotCosts& costs) {
  return static_cast<double>(plan.probe_batches * (range.quantizers + 1)) * costs.probe_batch +
         static_cast<double>(plan.calibration_batches) * costs.calibration_batch + costs.quantize;
}

double CurvatureSeconds(const Plan& plan, const SnapshotCosts& costs) {
  if (plan.curvature_sequences == 0) return 0;
  return costs.curvature_fixed +
         static_cast<double>(plan.curvature_sequences) * costs.curvature_sequence;
}

double MeanSeconds(const Plan& plan, const PlanRange& range, const SnapshotCosts& costs) {
  const double curvature = plan.curvature_every > 0 ? CurvatureSeconds(plan, costs) /
                                                          static_cast<double>(plan.curvature_every)
                                                    : 0;
  return QuantizationSeconds(plan, range, costs) + curvature;
}

Plan FitPlan(const PlanRange& range, const SnapshotCosts& costs, double seconds,
             std::optional<int64_t> sequences) {
  Plan plan = FullPlan(range);
  if (sequences) plan.curvature_sequences = *sequences;
  if (MeanSeconds(plan, range, costs) <= seconds) return plan;
  const bool curvature = plan.curvature_sequences > 0;
  const double for_quantization = curvature ? kQuantizationShare * seconds : seconds;
  ReduceBatches(range, costs, for_quantization, plan);
  if (!curvature) return plan;
  const double rest =
      std::max(seconds - QuantizationSeconds(plan, range, costs), kLeastCurvatureShare * seconds);
  if (!sequences) {
    const double quantization = QuantizationSeconds(plan, range, costs);
    const double longest = std::max(
        rest, std::min(kPreferredCurvatureEvery * rest, kLongestSnapshot * seconds - quantization));
    Plan least = {.curvature_sequences =
                      std::min(range.min_curvature_sequences, range.curvature_sequences)};
    if (CurvatureSeconds(least, costs) > kMostSeconds) least.curvature_sequences = 1;
    while (plan.curvature_sequences > least.curvature_sequences &&
           CurvatureSeconds(plan, costs) > longest) {
      plan.curvature_sequences =
          std::max(least.curvature_sequences, HalfOf(plan.curvature_sequences));
    }
  }
  plan.curvature_every = std::clamp<int64_t>(
      static_cast<int64_t>(std::ceil(std::min(1e6, CurvatureSeconds(plan, costs) / rest))), 1,
      kMostCurvatureEvery);
  return plan;
}

double AllowedSeconds(bool rests, double long_run_share, double interval) {
  const double seconds = rests ? std::max(interval, kShortestIntervalWithRests)
                               : kShareOfInterval * std::max(interval, kShortestInterval);
  return std::min(long_run_share * seconds, kMostSeconds);
}

std::string DescribePlan(const Plan& plan, const PlanRange& range) {
  std::string text =
      StrCat("probe ", plan.probe_batches, " of ", range.probe_batches, " batches, calibration ",
             plan.calibration_batches, " of ", range.calibration_batches, " batches");
  if (plan.curvature_sequences == 0) return text + ", no curvature";
  text += StrCat(", curvature on ", plan.curvature_sequences, " of ", range.curvature_sequences,
                 range.one_loss_each ? " examples" : " sequences", " at every ");
  if (plan.curvature_every > 1) text += Ordinal(plan.curvature_every) + " ";
  return text + "snapshot";
}

Planner::Planner(const PlanRange& range, const SnapshotCosts& costs, std::optional<Plan> kept)
    : range_(range), costs_(costs), plan_(FullPlan(range)) {
  if (!kept) return;
  // The subject may offer less than it did.
  plan_.probe_batches = std::clamp<int64_t>(kept->probe_batches, 1, range.probe_batches);
  plan_.calibration_batches =
      std::clamp<int64_t>(kept->calibration_batches, 1, range.calibration_batches);
  if (kept->curvature_sequences > 0 && kept->curvature_sequences <= range.curvature_sequences) {
    plan_.curvature_sequences = kept->curvature_sequences;
    plan_.curvature_every = std::max<int64_t>(1, kept->curvature_every);
    sequences_chosen_ = true;
  }
  kept_ = true;
}

void Planner::Fit(double seconds) {
  if (kept_) return;
  plan_ = FitPlan(range_, costs_, seconds,
                  sequences_chosen_ ? std::optional(plan_.curvature_sequences) : std::nullopt);
}

double Planner::Level() const {
  const double all = MeanSeconds(FullPlan(range_), range_, costs_);
  return all > 0 ? MeanSeconds(plan_, range_, costs_) / all : 1;
}

Plan Planner::Next(double soon) {
  ++snapshots_;
  Plan next = plan_;
  const bool first = snapshots_ == 1 && !kept_;
  if (first &&
      QuantizationSeconds(plan_, range_, costs_) + CurvatureSeconds(plan_, costs_) > soon) {
    curvature_put_off_ = true;
    return SmallestPlan(range_);
  }
  bool due = snapshots_ == 1 || ++since_curvature_ >= plan_.curvature_every;
  // What the first one left out comes with the second, unless that would keep the third waiting.
  if (std::exchange(curvature_put_off_, false)) {
    due = static_cast<double>(plan_.curvature_every) <= kPreferredCurvatureEvery;
  }
  if (!due || plan_.curvature_sequences == 0) {
    next.curvature_sequences = 0;
    return next;
  }
  since_curvature_ = 0;
  // The first snapshot shows what the machine can do, so its choice may still be changed.
  sequences_chosen_ = sequences_chosen_ || snapshots_ > 1;
  return next;
}

Plan Planner::Additional(double seconds) const {
  Plan plan = plan_;
  if (QuantizationSeconds(plan, range_, costs_) + CurvatureSeconds(plan, costs_) > seconds) {
    plan.curvature_sequences = 0;
  }
  return plan;
}

std::optional<Plan> Planner::Last(double seconds) const {
  Plan plan = FullPlan(range_);
  const auto fits = [&] {
    return QuantizationSeconds(plan, range_, costs_) + CurvatureSeconds(plan, costs_) <=
           kShareOfWait * seconds;
  };
  if (fits()) return plan;
  plan.curvature_sequences = plan_.curvature_sequences;
  return fits() ? std::optional(plan) : std::nullopt;
}

void Planner::Learn(const SnapshotWork& work) {
  const double predicted = QuantizationSeconds(work.plan, range_, costs_);
  if (predicted > 0 && work.quantization > 0) {
    const double scale = Blend(predicted, work.quantization) / predicted;
    costs_.probe_batch *= scale;
    costs_.calibration_batch *= scale;
    costs_.quantize *= scale;
  }
  if (work.curvature && work.plan.curvature_sequences > 0) {
    const double expected = CurvatureSeconds(work.plan, costs_);
    if (expected > 0) {
      const double scale = Blend(expected, *work.curvature) / expected;
      costs_.curvature_fixed *= scale;
      costs_.curvature_sequence *= scale;
    }
  }
}

std::optional<std::string> Planner::Measured(const SnapshotWork& work, double seconds) {
  Learn(work);
  const double mean = MeanSeconds(plan_, range_, costs_);
  // After the first snapshot the costs are known for the first time.
  const bool first = snapshots_ == 1 && !kept_;
  too_expensive_ = mean > kTooExpensive * seconds ? too_expensive_ + 1 : 0;
  too_cheap_ = mean < kTooCheap * seconds ? too_cheap_ + 1 : 0;
  if (!first && too_expensive_ < kTooExpensiveInARow && too_cheap_ < kTooCheapInARow)
    return std::nullopt;
  too_expensive_ = too_cheap_ = 0;
  kept_ = false;
  const Plan before = plan_;
  Fit(seconds);
  if (plan_ == before) return std::nullopt;
  return StrFormat(
      "%s: a snapshot takes %.2g s of work in the mean, and may take %.2g s (before: %s)",
      DescribePlan(plan_, range_), MeanSeconds(plan_, range_, costs_), seconds,
      DescribePlan(before, range_));
}

}  // namespace ptqwatch::internal
