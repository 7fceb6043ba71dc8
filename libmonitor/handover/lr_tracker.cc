#include "handover/lr_tracker.h"

#include <algorithm>
#include <cmath>

namespace ptqwatch::internal {
namespace {

constexpr double kSameRate = 1e-9;         // of the largest rate: rounding in the schedule
constexpr double kCornerTolerance = 5e-3;  // of the largest rate
// A falling rate is a decay if, at its current pace, it reaches zero within this share of the steps
// so far ...
constexpr double kDecayHorizon = 0.5;
// ... or if it follows a plateau of at least this share.
constexpr double kPlateauShare = 0.1;
// After a fall, a new constant level becomes the plateau once it has lasted for this share of the
// steps so far.
constexpr double kNewPlateauShare = 0.25;
constexpr int64_t kNewPlateauSteps = 100;

}  // namespace

void LrTracker::AddPoint(int64_t step, double learning_rate) noexcept {
  if (!any_rate_) return;
  int slot = state_.num_points;
  if (slot == LrState::kMaxPoints) {
    slot = LrState::kMaxPoints - 1;
  } else {
    ++state_.num_points;
  }
  state_.points[static_cast<size_t>(slot)] = {step, learning_rate};
}

void LrTracker::Restart(int64_t step, double learning_rate) noexcept {
  anchor_step_ = step;
  anchor_rate_ = learning_rate;
  slope_.reset();
  last_step_ = step;
  last_rate_ = learning_rate;
  AddPoint(step, learning_rate);
}

void LrTracker::Step(int64_t step, std::optional<double> known,
                     std::optional<LrPhase> override_phase) noexcept {
  if (known && !std::isfinite(*known)) known.reset();
  if (known && !any_rate_) {
    any_rate_ = true;
    started_ = false;  // the schedule begins here
  }
  const double learning_rate = known.value_or(last_rate_);
  largest_rate_ = std::max(largest_rate_, learning_rate);
  if (!started_) {
    started_ = true;
    first_step_ = step;
    plateau_ = learning_rate;
    Restart(step, learning_rate);
  } else if (step < last_step_) {
    state_.rolled_back = true;
    first_step_ = std::min(first_step_, step);
    flat_steps_ = 0;
    if (state_.decay_onset_step && *state_.decay_onset_step >= step) {
      state_.decay_onset_step.reset();
      decayed_ = false;
      state_.phase = LrPhase::kUnknown;
      plateau_ = learning_rate;
    }
    Restart(step, learning_rate);
  } else if (step > last_step_) {
    const double run = static_cast<double>(step - anchor_step_);
    if (!slope_) {
      slope_ = (learning_rate - anchor_rate_) / run;
    } else {
      const double expected = anchor_rate_ + *slope_ * run;
      // A flat segment needs no tolerance for curvature: its end is the exact onset of a decay.
      const double tolerance = *slope_ == 0 ? kSameRate : kCornerTolerance;
      if (std::abs(learning_rate - expected) > tolerance * largest_rate_) {
        AddPoint(last_step_, last_rate_);
        anchor_step_ = last_step_;
        anchor_rate_ = last_rate_;
        slope_ = (learning_rate - last_rate_) / static_cast<double>(step - last_step_);
      }
    }
    state_.phase = Infer(step, learning_rate);
    last_step_ = step;
    last_rate_ = learning_rate;
  }
  if (!any_rate_) state_.phase = LrPhase::kUnknown;
  if (override_phase) {
    state_.phase = *override_phase;
    if (*override_phase == LrPhase::kDecay && !state_.decay_onset_step) {
      state_.decay_onset_step = step;
    }
  }
}

LrPhase LrTracker::Infer(int64_t step, double learning_rate) noexcept {
  const double change = learning_rate - last_rate_;
  const double same = kSameRate * largest_rate_;
  const int64_t passed = step - last_step_;
  const double elapsed = static_cast<double>(step - first_step_);

  if (change > same) {
    flat_steps_ = 0;
    plateau_ = learning_rate;
    state_.decay_onset_step.reset();
    return decayed_ ? LrPhase::kRewarm : LrPhase::kWarmup;
  }
  if (change >= -same) {
    flat_steps_ += passed;
    const bool at_plateau = learning_rate >= plateau_ - same;
    const bool settled = learning_rate > 0 && flat_steps_ >= kNewPlateauSteps &&
                         static_cast<double>(flat_steps_) >= kNewPlateauShare * elapsed;
    if (!at_plateau && !settled) return state_.phase;
    plateau_ = learning_rate;
    decayed_ = false;
    state_.decay_onset_step.reset();
    return LrPhase::kStable;
  }
  const bool after_plateau = static_cast<double>(flat_steps_) >= kPlateauShare * elapsed;
  flat_steps_ = 0;
  decayed_ = true;
  if (!state_.decay_onset_step) state_.decay_onset_step = step;
  if (state_.phase == LrPhase::kDecay || after_plateau) return LrPhase::kDecay;
  const double steps_to_zero = learning_rate / (-change / static_cast<double>(passed));
  return steps_to_zero < kDecayHorizon * elapsed ? LrPhase::kDecay : LrPhase::kSlowDecay;
}

void LrTracker::Restore(LrPhase phase, std::optional<int64_t> decay_onset_step) noexcept {
  state_.phase = phase;
  state_.decay_onset_step = decay_onset_step;
  Reported();
}

void LrTracker::Continue(const LrTracker& past) noexcept {
  if (!past.started_) return;
  const LrState own = state_;
  *this = past;
  for (int i = 0; i < own.num_points; ++i) {
    Step(own.points[static_cast<size_t>(i)].step, own.points[static_cast<size_t>(i)].learning_rate,
         std::nullopt);
  }
}

void LrTracker::Reported() noexcept {
  state_.num_points = 0;
  state_.rolled_back = false;
}

void LrTracker::NotReported(const LrState& taken) noexcept {
  const LrState since = state_;
  state_.points = taken.points;
  state_.num_points = taken.num_points;
  state_.rolled_back |= taken.rolled_back;
  for (int i = 0; i < since.num_points; ++i) {
    const LrChangePoint& point = since.points[static_cast<size_t>(i)];
    AddPoint(point.step, point.learning_rate);
  }
}

}  // namespace ptqwatch::internal
