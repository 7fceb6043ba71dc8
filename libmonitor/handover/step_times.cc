#include "handover/step_times.h"

#include <algorithm>
#include <cmath>

namespace ptqwatch::internal {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr double kTypicalRate = 0.05;
// Multiple of the typical time. Working on one of the trainer's cores doubles the time of a step.
constexpr double kLongest = 4;
// Neighbouring steps are similar, so a comparison is less certain than its error suggests. One
// comparison moves the mean by at most `kLargestSurprise` until the next confirms it.
constexpr double kLeastError = 0.005;
constexpr double kLargestSurprise = 0.05;
constexpr double kForgetting = 0.9;  // from one comparison to the next
constexpr double kSureErrors = 3;
constexpr double kStillSureErrors = 1.5;

StepTimes::Sums Difference(const StepTimes::Sums& now, const StepTimes::Sums& before) {
  return {now.steps - before.steps, now.seconds - before.seconds, now.squares - before.squares};
}

double Mean(const StepTimes::Sums& sums) { return sums.seconds / sums.steps; }

// Squared standard error of the mean.
double MeanVariance(const StepTimes::Sums& sums) {
  const double mean = Mean(sums);
  return std::max(0.0, sums.squares / sums.steps - mean * mean) / (sums.steps - 1);
}

}  // namespace

void StepTimes::Cell::Add(double value) noexcept {
  // One writer, so no read-modify-write is needed.
  steps.store(steps.load(kRelaxed) + 1, kRelaxed);
  seconds.store(seconds.load(kRelaxed) + value, kRelaxed);
  squares.store(squares.load(kRelaxed) + value * value, kRelaxed);
}

StepTimes::Sums StepTimes::Cell::Read() const noexcept {
  return {steps.load(kRelaxed), seconds.load(kRelaxed), squares.load(kRelaxed)};
}

void StepTimes::OnStep(double now, bool working, bool copied) noexcept {
  const double seconds = now - last_;
  const bool whole = started_ && !copied && working == last_working_;
  started_ = true;
  last_ = now;
  last_working_ = working;
  if (!whole || !(seconds > 0)) return;
  if (typical_ == 0) typical_ = seconds;
  const double bounded = std::min(seconds, kLongest * typical_);
  typical_ += kTypicalRate * (bounded - typical_);
  if (bounded < seconds) return;
  (working ? working_ : alone_).Add(seconds);
}

std::optional<StepComparison> Slowdown::Compare(const StepTimes& times) {
  const StepTimes::Sums working_now = times.working();
  const StepTimes::Sums alone_now = times.alone();
  const StepTimes::Sums working = Difference(working_now, working_);
  const StepTimes::Sums alone = Difference(alone_now, alone_);
  if (working.steps < kFewest || alone.steps < kFewest) return std::nullopt;
  working_ = working_now;
  alone_ = alone_now;
  const double base = Mean(alone);
  if (!(base > 0)) return std::nullopt;
  return StepComparison{
      .ratio = Mean(working) / base - 1,
      .stderr_ratio = std::sqrt(MeanVariance(working) + MeanVariance(alone)) / base,
      .lost_seconds = working.steps * (Mean(working) - base)};
}

void Slowdown::Add(const StepComparison& comparison) {
  const double before = evidence_ > 0 ? weighted_ / evidence_ : 0;
  const double seen =
      std::clamp(comparison.ratio, before - kLargestSurprise, before + kLargestSurprise);
  const double error = comparison.stderr_ratio;
  const double weight = 1 / (error * error + kLeastError * kLeastError);
  evidence_ = kForgetting * evidence_ + weight;
  weighted_ = kForgetting * weighted_ + weight * seen;
  const double mean = weighted_ / evidence_;
  const double errors = ratio_ > 0 ? kStillSureErrors : kSureErrors;
  ratio_ = mean > errors / std::sqrt(evidence_) ? mean : 0;
}

}  // namespace ptqwatch::internal
