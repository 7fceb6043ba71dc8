#include "handover/step_checks.h"

#include <cmath>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

// The learning rate may be 0 at the start of a warm-up.
constexpr int64_t kCallsWithoutRate = 20;
// A trainer may call OnStep for a step that a gradient scaler skipped, and may occasionally roll
// back.
constexpr int64_t kFew = 10;
constexpr int64_t kCallsAFall = 10;

}  // namespace

bool StepChecks::Note(Mistake mistake, const StepInfo& info) noexcept {
  Finding& finding = findings_[mistake];
  if (finding.state.load(std::memory_order_relaxed) != State::kNone) return false;
  finding.step = info.step;
  finding.before = last_step_.value_or(info.step);
  finding.learning_rate = info.learning_rate;
  finding.calls = calls_;
  finding.state.store(State::kFound, std::memory_order_release);
  return true;
}

bool StepChecks::OnStep(const StepInfo& info) noexcept {
  bool found = false;
  ++calls_;
  const double rate = info.learning_rate.value_or(0);
  if (rate > 0 && std::isfinite(rate)) {
    any_rate_ = true;
  } else if (rate != 0) {
    found = Note(kBadRate, info);
  } else if (!any_rate_ && calls_ >= kCallsWithoutRate) {
    found = Note(kNoRate, info);
  }
  if (last_step_ && info.step == *last_step_) {
    ++repeats_;
    if (repeats_ >= kFew && 2 * repeats_ >= calls_ - 1) found |= Note(kStepsStand, info);
  } else if (last_step_ && info.step < *last_step_) {
    ++falls_;
    // Steps start over, or fall repeatedly.
    if (info.step <= 1 || (falls_ >= kFew && kCallsAFall * falls_ >= calls_)) {
      found |= Note(kStepsFall, info);
    }
  }
  last_step_ = info.step;
  return found;
}

std::string StepChecks::Text(Mistake mistake, const Finding& finding) {
  constexpr std::string_view kPassTheRate = "pass the rate that the optimizer uses for the step";
  switch (mistake) {
    case kNoRate:
      return StrCat("StepInfo.learning_rate ", finding.learning_rate ? "= 0" : "is missing",
                    " at all of the first ", finding.calls,
                    " steps: without it no phase is known, and no verdict can show the effect "
                    "of a decay; ",
                    kPassTheRate);
    case kBadRate:
      return StrCat("StepInfo.learning_rate = ", *finding.learning_rate, " at step ", finding.step,
                    " is not a valid learning rate, which phases and verdicts need; ",
                    kPassTheRate);
    case kStepsStand:
      return StrCat("StepInfo.step = ", finding.step, " does not advance: at least half of the ",
                    finding.calls,
                    " calls of OnStep so far repeated the step of the one before. Pass the number "
                    "of optimizer steps so far, and call OnStep once after each of them, not after "
                    "each micro-batch");
    case kStepsFall:
      return StrCat("StepInfo.step = ", finding.step, " came after ", finding.before,
                    ": that counts as a rollback, which cuts the series of reports. If nothing was "
                    "rolled back, pass the number of optimizer steps since the run began, not "
                    "since the epoch did, and call OnStep from one place");
    case kMistakes:
      break;
  }
  return {};
}

std::vector<StepMistake> StepChecks::Take() {
  std::vector<StepMistake> mistakes;
  for (int i = 0; i < kMistakes; ++i) {
    Finding& finding = findings_[static_cast<size_t>(i)];
    if (finding.state.load(std::memory_order_acquire) != State::kFound) continue;
    mistakes.push_back({finding.step, Text(static_cast<Mistake>(i), finding)});
    finding.state.store(State::kReported, std::memory_order_relaxed);
  }
  return mistakes;
}

}  // namespace ptqwatch::internal
