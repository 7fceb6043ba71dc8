#include "trajectory/lr_history.h"

#include <algorithm>
#include <cstdint>

#include "handover/lr_tracker.h"

namespace ptqwatch::internal {
namespace {

// More steps between two checkpoints are followed in equal strides.
constexpr int64_t kMostSteps = 10'000'000;

// Steps through (after, until].
void FollowSchedule(const LrSchedule& schedule, int64_t after, int64_t until, LrTracker& lr) {
  const int64_t stride = (until - after) / kMostSteps + 1;
  for (int64_t step = after + stride; step < until; step += stride) {
    lr.Step(step, schedule.RateAt(step), std::nullopt);
  }
  lr.Step(until, schedule.RateAt(until), std::nullopt);
}

// The logged rates in (after, checkpoint's step]; returns the rate at the checkpoint.
std::optional<double> FollowLog(const Checkpoint& checkpoint, int64_t after, LrTracker& lr) {
  std::optional<double> rate;
  for (const LrChangePoint& point : checkpoint.rates) {
    if (point.step > checkpoint.step) break;
    rate = point.learning_rate;
    if (point.step > after) lr.Step(point.step, *rate, std::nullopt);
  }
  if (rate) lr.Step(checkpoint.step, *rate, std::nullopt);
  return rate;
}

}  // namespace

std::vector<LrAtCheckpoint> FollowRates(absl::Span<const Checkpoint> checkpoints,
                                        const LrSchedules& schedules) {
  std::vector<LrAtCheckpoint> rates;
  LrTracker lr;
  int64_t followed = 0;  // the step of the branch up to which `lr` has come
  for (size_t i = 0; i < checkpoints.size(); ++i) {
    const Checkpoint& checkpoint = checkpoints[i];
    if (i > 0 && checkpoint.branch != checkpoints[i - 1].branch) {
      lr = LrTracker();
      followed = 0;
    }
    LrAtCheckpoint at;
    const LrSchedule* const schedule = schedules.Of(checkpoint.branch);
    if (!checkpoint.soup.empty()) {
      // A mean of checkpoints has no rate.
    } else if (checkpoint.learning_rate) {
      at.learning_rate = checkpoint.learning_rate;
      lr.Step(checkpoint.step, *checkpoint.learning_rate, std::nullopt);
    } else if (schedule != nullptr && checkpoint.step != kUnknownStep) {
      at.learning_rate = schedule->RateAt(checkpoint.step);
      FollowSchedule(*schedule, std::min(followed, checkpoint.step), checkpoint.step, lr);
    } else {
      at.learning_rate = FollowLog(checkpoint, followed, lr);
    }
    followed = checkpoint.step;
    if (at.learning_rate) {
      at.lr = lr.state();
      lr.Reported();
    }
    rates.push_back(at);
  }
  return rates;
}

}  // namespace ptqwatch::internal
