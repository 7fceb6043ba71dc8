#ifndef PTQWATCH_PUBLISH_STATUS_BOARD_H_
#define PTQWATCH_PUBLISH_STATUS_BOARD_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "handover/trainer_board.h"
#include "ptqwatch/event.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// The counters and gauges of MonitorStatus: those of the trainer's half (TrainerBoard), and those
/// of the measuring half, which are kept here. Each group names the threads that write it; any
/// thread may call Read at any time. Values of different groups may be one step apart.
class StatusBoard {
 public:
  /// `trainer` has what the trainer's half counts; it must outlive this.
  explicit StatusBoard(const TrainerBoard* trainer) : trainer_(*trainer) {}

  /// Publishing thread.
  void OnEvent(Event::Kind kind) noexcept {
    events_[static_cast<size_t>(kind)].fetch_add(1, kRelaxed);
  }

  /// Monitor thread.
  void OnReport(int64_t sequence) noexcept {
    reports_total_.fetch_add(1, kRelaxed);
    last_sequence_.store(sequence, kRelaxed);
  }
  void Resume(int64_t last_sequence) noexcept { last_sequence_.store(last_sequence, kRelaxed); }
  void OnProbeFailure() noexcept { probe_failures_total_.fetch_add(1, kRelaxed); }
  void OnStateWriteFailure() noexcept { state_write_failures_total_.fetch_add(1, kRelaxed); }
  /// Called around each snapshot. In between, Alive is called at least once per batch.
  void SetBusy(bool busy, double now) noexcept;
  void Alive(double now) noexcept;
  void SetHealth(Health health, std::string reason = {});
  /// Seconds that training lost to the monitor's work since the previous call, from a comparison of
  /// steps; negative if the steps were faster. `now`: seconds of the monotonic clock.
  void AddLostSeconds(double seconds, double now);
  /// Seconds that training lost to the server beside the run.
  void AddServerSeconds(double seconds) noexcept {
    server_seconds_.store(server_seconds_.load(kRelaxed) + seconds, kRelaxed);
  }
  /// The server keeper's thread, and Create.
  void SetServer(const ServerStatus& server);
  void SetPlanLevel(double level) noexcept { plan_level_.store(level, kRelaxed); }
  void SetDutyCycle(double duty_cycle) noexcept { duty_cycle_.store(duty_cycle, kRelaxed); }

  /// Exporters' threads. Takes a lock that is never held for long, so it delays neither the trainer
  /// nor the monitor thread.
  void CountDrop(std::string_view exporter, std::string_view reason);

  /// Any thread.
  /// Sequence number of the newest report in this or an earlier attempt; 0: no report yet.
  int64_t last_sequence() const noexcept { return last_sequence_.load(kRelaxed); }
  bool busy() const noexcept { return busy_.load(std::memory_order_acquire); }
  /// Seconds from the last sign of life of the current measurement to `now`; 0 without one.
  double Silence(double now) const noexcept {
    return busy() ? now - alive_seconds_.load(kRelaxed) : 0;
  }
  /// All counters and gauges at monotonic time `now`, which is `unix_seconds` of wall time. The
  /// caller fills in the slice and the switches.
  MonitorStatus Read(double now, double unix_seconds) const;

 private:
  static constexpr auto kRelaxed = std::memory_order_relaxed;
  // Health that was ok at the last report may have turned into a hang since.
  void NoteAges(double now, MonitorStatus& status) const;
  void ReadOverhead(double elapsed, MonitorStatus& status) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Sums over comparisons of training's steps: the seconds lost in each, the seconds that passed,
  // and their products.
  struct LostSums {
    int64_t count = 0;
    double lost = 0;
    double passed = 0;
    double lost_lost = 0;
    double lost_passed = 0;
    double passed_passed = 0;
  };

  const TrainerBoard& trainer_;
  std::atomic<int64_t> reports_total_{0};
  std::atomic<int64_t> last_sequence_{0};
  std::array<std::atomic<int64_t>, kEventKinds> events_{};
  std::atomic<int64_t> probe_failures_total_{0};
  std::atomic<int64_t> state_write_failures_total_{0};
  std::atomic<bool> busy_{false};
  std::atomic<double> alive_seconds_{0};
  std::atomic<double> longest_silence_{0};  // between two calls of Alive within a snapshot
  std::atomic<double> server_seconds_{0};
  std::atomic<double> duty_cycle_{1};
  std::atomic<double> plan_level_{1};

  mutable Mutex mutex_;
  std::map<std::pair<std::string, std::string>, int64_t> drops_ ABSL_GUARDED_BY(mutex_);
  Health health_ ABSL_GUARDED_BY(mutex_) = Health::kStarting;
  std::string health_reason_ ABSL_GUARDED_BY(mutex_);
  ServerStatus server_ ABSL_GUARDED_BY(mutex_);
  LostSums lost_ ABSL_GUARDED_BY(mutex_);
  double compared_seconds_ ABSL_GUARDED_BY(mutex_) = 0;  // time of the last comparison
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PUBLISH_STATUS_BOARD_H_
