#include "publish/status_board.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/strings.h"
#include "base/student_quantile.h"

namespace ptqwatch::internal {
namespace {

// A closure hangs if it has not returned for this long, and for a multiple of its longest time so
// far. At a small duty cycle the thread rests for minutes between two batches.
constexpr double kLongSilenceSeconds = 600;
constexpr double kSilenceFactor = 10;
constexpr int64_t kNotCopiedInARow = 3;
// Fewer comparisons do not show their scatter.
constexpr int64_t kLeastComparisons = 5;

}  // namespace

void StatusBoard::SetBusy(bool busy, double now) noexcept {
  alive_seconds_.store(now, kRelaxed);
  busy_.store(busy, std::memory_order_release);  // a reader who sees it sees the time, too
}

void StatusBoard::Alive(double now) noexcept {
  const double silence = now - alive_seconds_.load(kRelaxed);
  if (busy() && silence > longest_silence_.load(kRelaxed))
    longest_silence_.store(silence, kRelaxed);
  alive_seconds_.store(now, kRelaxed);
}

void StatusBoard::SetHealth(Health health, std::string reason) {
  MutexLock lock(mutex_);
  health_ = health;
  health_reason_ = std::move(reason);
}

void StatusBoard::SetServer(const ServerStatus& server) {
  MutexLock lock(mutex_);
  server_ = server;
}

void StatusBoard::NoteAges(double now, MonitorStatus& status) const {
  if (status.health != Health::kOk) return;
  const double silence = now - alive_seconds_.load(kRelaxed);
  const int64_t not_copied = trainer_.not_copied_in_a_row();
  if (status.busy &&
      silence > std::max(kLongSilenceSeconds, kSilenceFactor * longest_silence_.load(kRelaxed))) {
    status.health = Health::kDegraded;
    status.health_reason =
        StrFormat("nothing was measured for %.0f s: the losses closure does not return", silence);
  } else if (not_copied >= kNotCopiedInARow) {
    status.health = Health::kDegraded;
    status.health_reason =
        StrCat(not_copied, " due snapshots in a row could not be copied; the log says why");
  }
}

void StatusBoard::AddLostSeconds(double seconds, double now) {
  MutexLock lock(mutex_);
  const double since = lost_.count > 0 ? compared_seconds_ : trainer_.first_step_seconds();
  const double passed = std::max(0.0, now - since);
  compared_seconds_ = now;
  ++lost_.count;
  lost_.lost += seconds;
  lost_.passed += passed;
  lost_.lost_lost += seconds * seconds;
  lost_.lost_passed += seconds * passed;
  lost_.passed_passed += passed * passed;
}

// The losses to stalls and to the server are known. The loss to slower steps is a ratio
// of sums over the comparisons; their scatter gives its standard error (Cochran, Sampling
// Techniques, eq. 6.13).
void StatusBoard::ReadOverhead(double elapsed, MonitorStatus& status) const {
  if (elapsed <= 0) return;
  const double known = trainer_.stall_seconds() + server_seconds_.load(kRelaxed);
  status.overhead_ratio = (known + std::max(0.0, lost_.lost)) / elapsed;
  status.overhead_comparisons = lost_.count;
  if (lost_.count < kLeastComparisons || !(lost_.passed > 0)) return;
  const double n = static_cast<double>(lost_.count);
  const double ratio = lost_.lost / lost_.passed;
  const double squares =
      lost_.lost_lost - 2 * ratio * lost_.lost_passed + ratio * ratio * lost_.passed_passed;
  const double margin = StudentQuantile(static_cast<int>(lost_.count - 1)) *
                        std::sqrt(std::max(0.0, squares) * n / (n - 1));
  status.overhead_low_ratio = (known + std::max(0.0, lost_.lost - margin)) / elapsed;
  status.overhead_high_ratio = (known + std::max(0.0, lost_.lost + margin)) / elapsed;
}

void StatusBoard::CountDrop(std::string_view exporter, std::string_view reason) {
  MutexLock lock(mutex_);
  ++drops_[{std::string(exporter), std::string(reason)}];
}

MonitorStatus StatusBoard::Read(double now, double unix_seconds) const {
  MonitorStatus status;
  trainer_.AddTo(status, now, unix_seconds);
  status.reports_total = reports_total_.load(kRelaxed);
  status.last_sequence = last_sequence();
  for (size_t i = 0; i < events_.size(); ++i) status.events[i] = events_[i].load(kRelaxed);
  status.probe_failures_total = probe_failures_total_.load(kRelaxed);
  status.state_write_failures_total = state_write_failures_total_.load(kRelaxed);
  status.busy = busy();
  status.duty_cycle = duty_cycle_.load(kRelaxed);
  status.plan_level_ratio = plan_level_.load(kRelaxed);
  {
    MutexLock lock(mutex_);
    for (const auto& [place, count] : drops_) {
      status.dropped_reports.push_back({place.first, place.second, count});
    }
    status.health = health_;
    status.health_reason = health_reason_;
    status.server = server_;
    if (status.step) ReadOverhead(now - trainer_.first_step_seconds(), status);
  }
  NoteAges(now, status);
  return status;
}

}  // namespace ptqwatch::internal
