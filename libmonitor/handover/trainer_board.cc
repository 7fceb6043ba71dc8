#include "handover/trainer_board.h"

#include <cmath>

namespace ptqwatch::internal {
namespace {

// The time of a step is the mean of the newest steps, from this many to twice as many. It includes
// pauses for evaluation, which count for the time between snapshots.
constexpr int64_t kRecentSteps = 1000;

}  // namespace

void TrainerBoard::OnStep(const StepInfo& info, LrPhase phase, double now) noexcept {
  if (!stepped_.load(kRelaxed)) first_step_seconds_.store(now, kRelaxed);
  step_.store(info.step, kRelaxed);
  // One writer, so no read-modify-write is needed.
  const int64_t before = steps_total_.load(kRelaxed);
  steps_total_.store(before + 1, kRelaxed);
  if (before % kRecentSteps == 0) {
    recent_from_ = before == 0 ? StepMark{0, now} : newest_mark_;
    newest_mark_ = {before, now};
  }
  if (before > recent_from_.steps) {
    seconds_a_step_.store(
        (now - recent_from_.seconds) / static_cast<double>(before - recent_from_.steps), kRelaxed);
  }
  last_step_seconds_.store(now, kRelaxed);
  learning_rate_.store(info.learning_rate.value_or(std::nan("")), kRelaxed);
  tokens_.store(info.tokens.value_or(kNoTokens), kRelaxed);
  if (info.loss) loss_.store(*info.loss, kRelaxed);
  has_loss_.store(info.loss.has_value(), std::memory_order_release);
  phase_.store(phase, kRelaxed);
  stepped_.store(true, std::memory_order_release);
}

void TrainerBoard::OnSnapshot(SnapshotResult result, double stall_seconds) noexcept {
  snapshots_[static_cast<size_t>(result)].fetch_add(1, kRelaxed);
  size_t bucket = 0;
  while (bucket < kStallBucketSeconds.size() && stall_seconds > kStallBucketSeconds[bucket]) {
    ++bucket;
  }
  stall_buckets_[bucket].fetch_add(1, kRelaxed);
  if (result == SnapshotResult::kSkippedMismatch || result == SnapshotResult::kFailed) {
    not_copied_in_a_row_.fetch_add(1, kRelaxed);
  } else if (result == SnapshotResult::kTaken) {
    not_copied_in_a_row_.store(0, kRelaxed);
  }
  stall_seconds_.store(stall_seconds_.load(kRelaxed) + stall_seconds, kRelaxed);
}

void TrainerBoard::OnIncomplete() noexcept {
  snapshots_[static_cast<size_t>(SnapshotResult::kIncomplete)].fetch_add(1, kRelaxed);
}

void TrainerBoard::AddTo(MonitorStatus& status, double now, double unix_seconds) const {
  if (stepped()) {
    status.step = step_.load(kRelaxed);
    const double rate = learning_rate_.load(kRelaxed);
    if (!std::isnan(rate)) status.learning_rate = rate;
    status.last_step_unix_seconds = unix_seconds - (now - last_step_seconds_.load(kRelaxed));
  }
  status.steps_total = steps_total_.load(kRelaxed);
  status.seconds_a_step = seconds_a_step();
  if (const int64_t tokens = tokens_.load(kRelaxed); tokens != kNoTokens) status.tokens = tokens;
  if (has_loss_.load(std::memory_order_acquire)) status.training_loss_nats = loss_.load(kRelaxed);
  status.lr_phase = phase_.load(kRelaxed);
  for (size_t i = 0; i < snapshots_.size(); ++i) status.snapshots[i] = snapshots_[i].load(kRelaxed);
  for (size_t i = 0; i < stall_buckets_.size(); ++i) {
    status.stall_buckets[i] = stall_buckets_[i].load(kRelaxed);
  }
  status.stall_seconds_total = stall_seconds_.load(kRelaxed);
}

}  // namespace ptqwatch::internal
