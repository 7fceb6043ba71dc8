#ifndef PTQWATCH_MONITOR_GOVERNOR_H_
#define PTQWATCH_MONITOR_GOVERNOR_H_

#include <optional>

#include "base/cpu_reading.h"

namespace ptqwatch::internal {

/// Decides how fast the monitor thread may work, from what the machine has to spare.
///
/// A core is spare where the CPUs that the process may use were idle, or the monitor's own, for
/// most of one core over the last second or more. Then the monitor works without pause, unless the
/// steps of training are seen to take longer meanwhile (shared caches and memory, hardware
/// threads): then it rests so long that training loses no more than `max_overhead`. No core is
/// spare either while a cgroup's quota stops the process: after 10 seconds, and after twice as many
/// each time it happens again, up to 10 minutes, another attempt is made. Without a spare core its
/// work takes time from training: it works a quarter of the time, and rests between snapshots so
/// that all of its work stays below 2 `max_overhead` of wall-clock time. Two, because a stretch of
/// work on one of the trainer's cores makes its step take at most twice as long there.
///
/// Until there is a reading it works slowly, but neither rests nor takes a core for spare or taken
/// other than by the number of threads. From then on one reading decides. Times are in seconds. One
/// thread at a time.
class Governor {
 public:
  struct Options {
    double max_overhead = 0.02;
    /// Works this share of the time, whatever the readings say, and does not rest.
    std::optional<double> duty_cycle = {};
    /// Decides while there are no readings.
    bool cores_exceed_threads = false;
    /// CPU time a second that the process may use; less than its CPUs under a cgroup quota.
    std::optional<double> quota_cores = {};
    /// The work is done by a GPU that trains, which is never spare, whatever its CPUs are.
    bool on_training_device = false;
  };
  /// `now` is when the allowance begins to grow.
  Governor(const Options& options, double now)
      : options_(options), known_(options.on_training_device), last_charge_(now) {}

  /// Takes a reading; one less than a second after the previous one (for the first two: a tenth) is
  /// ignored. Nothing means that the system has none.
  void Read(const std::optional<CpuReading>& reading);
  /// Charges the time that the thread, or its device, worked until `now`. At most half a minute of
  /// work can have been saved up before.
  void Worked(double seconds, double now);
  /// Takes how much longer steps took while it worked, with the standard error. The mean of about
  /// the last ten, weighted by their errors, counts while it is more than three of its own.
  void Slowed(double ratio, double stderr_ratio);
  /// From now on at full speed, and free of charge: training is over, or waits.
  void SetUnhindered(bool unhindered) { unhindered_ = unhindered; }

  /// Share of wall-clock time to work while a snapshot is measured, in (0, 1].
  double share() const;
  /// Share of wall-clock time that all work together may take in the long run, in (0, 1].
  double long_run_share() const;
  /// Whether it was told how fast to work.
  bool told() const { return options_.duty_cycle.has_value(); }
  bool spare() const { return known_ ? spare_ : options_.cores_exceed_threads; }
  /// Whether its work is charged, and paid for by rests.
  bool rests() const {
    return known_ && LongRunShare() < 1 && !unhindered_ && !options_.duty_cycle;
  }
  /// Seconds of rest from `now` on before the next snapshot may be measured; 0: none.
  double RestSeconds(double now) const;

 private:
  bool Throttled(const CpuReading& reading);
  double LongRunShare() const;
  double ShareWithoutSpareCore() const;
  double SavedAt(double now) const;

  const Options options_;
  std::optional<CpuReading> last_;
  bool known_;
  bool spare_ = false;
  double throttle_backoff_ = 0;  // after the newest throttling
  double not_spare_until_ = 0;   // by the reading's clock
  bool unhindered_ = false;
  double evidence_ = 0;  // sum of the weights of what Slowed was given, older ones forgotten
  double weighted_ = 0;  // ... and of its ratios
  double slowdown_ = 0;  // of steps while it works on a spare core; 0: none was seen
  double saved_ = 0;     // seconds of work that were not used; negative: to be paid for by rest
  double last_charge_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_GOVERNOR_H_
