#include "monitor/status_board.h"

#include <algorithm>

namespace ptqwatch::internal {

void StatusBoard::OnStep(const StepInfo& info, LrPhase phase, double unix_seconds) noexcept {
  if (!stepped_.load(kRelaxed)) {
    first_step_seconds_.store(unix_seconds, kRelaxed);
    stepped_.store(true, kRelaxed);
  }
  step_.store(info.step, kRelaxed);
  // One writer, so no read-modify-write is needed.
  steps_total_.store(steps_total_.load(kRelaxed) + 1, kRelaxed);
  last_step_seconds_.store(unix_seconds, kRelaxed);
  learning_rate_.store(info.learning_rate, kRelaxed);
  tokens_.store(info.tokens.value_or(kNoTokens), kRelaxed);
  has_loss_.store(info.loss.has_value(), kRelaxed);
  loss_.store(info.loss.value_or(0), kRelaxed);
  phase_.store(phase, kRelaxed);
}

void StatusBoard::OnSnapshot(SnapshotResult result, double stall_seconds) noexcept {
  snapshots_[static_cast<size_t>(result)].fetch_add(1, kRelaxed);
  size_t bucket = 0;
  while (bucket < kStallBucketSeconds.size() && stall_seconds > kStallBucketSeconds[bucket]) {
    ++bucket;
  }
  stall_buckets_[bucket].fetch_add(1, kRelaxed);
  stall_seconds_.store(stall_seconds_.load(kRelaxed) + stall_seconds, kRelaxed);
}

void StatusBoard::CountDrop(std::string_view exporter, std::string_view reason) {
  MutexLock lock(drops_mutex_);
  ++drops_[{std::string(exporter), std::string(reason)}];
}

double StatusBoard::seconds_a_step() const noexcept {
  const int64_t steps = steps_total_.load(kRelaxed);
  if (steps < 2) return 0;
  return (last_step_seconds_.load(kRelaxed) - first_step_seconds_.load(kRelaxed)) /
         static_cast<double>(steps - 1);
}

MonitorStatus StatusBoard::Read(double unix_seconds) const {
  MonitorStatus status;
  if (stepped_.load(kRelaxed)) {
    status.step = step_.load(kRelaxed);
    const double elapsed = unix_seconds - first_step_seconds_.load(kRelaxed);
    if (elapsed > 0) {
      const double lost =
          stall_seconds_.load(kRelaxed) + std::max(0.0, lost_seconds_.load(kRelaxed));
      status.overhead_ratio = lost / elapsed;
    }
  }
  status.steps_total = steps_total_.load(kRelaxed);
  status.seconds_a_step = seconds_a_step();
  status.last_step_unix_seconds = last_step_seconds_.load(kRelaxed);
  status.learning_rate = learning_rate_.load(kRelaxed);
  if (const int64_t tokens = tokens_.load(kRelaxed); tokens != kNoTokens) status.tokens = tokens;
  if (has_loss_.load(kRelaxed)) status.training_loss_nats = loss_.load(kRelaxed);
  status.lr_phase = phase_.load(kRelaxed);
  for (size_t i = 0; i < snapshots_.size(); ++i) status.snapshots[i] = snapshots_[i].load(kRelaxed);
  for (size_t i = 0; i < stall_buckets_.size(); ++i) {
    status.stall_buckets[i] = stall_buckets_[i].load(kRelaxed);
  }
  status.stall_seconds_total = stall_seconds_.load(kRelaxed);
  status.reports_total = reports_total_.load(kRelaxed);
  for (size_t i = 0; i < events_.size(); ++i) status.events[i] = events_[i].load(kRelaxed);
  status.probe_failures_total = probe_failures_total_.load(kRelaxed);
  status.state_write_failures_total = state_write_failures_total_.load(kRelaxed);
  status.busy = busy_.load(kRelaxed);
  status.health = health_.load(kRelaxed);
  status.duty_cycle = duty_cycle_.load(kRelaxed);
  status.plan_level_ratio = plan_level_.load(kRelaxed);
  MutexLock lock(drops_mutex_);
  status.dropped_reports = drops_;
  return status;
}

}  // namespace ptqwatch::internal
