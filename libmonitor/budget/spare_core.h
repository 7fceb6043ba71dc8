#ifndef PTQWATCH_BUDGET_SPARE_CORE_H_
#define PTQWATCH_BUDGET_SPARE_CORE_H_

#include <optional>

#include "base/cpu_reading.h"

namespace ptqwatch::internal {

/// Decides whether the machine has a core that training does not use.
///
/// A core is spare if, over the last second or more, the idle time of the CPUs that the process may
/// use and the monitor's own CPU time add up to most of one core. No core is spare for 10 seconds
/// after a cgroup's quota throttled the process; each time that the monitor causes throttling
/// again, this time doubles, up to 10 minutes. Not thread-safe.
class SpareCore {
 public:
  struct Options {
    /// Decides until there are readings.
    bool cores_exceed_threads = false;
    /// CPU seconds per second that the process may use; under a cgroup quota, less than its CPUs.
    std::optional<double> quota_cores = {};
    /// The work runs on a GPU that also trains, so nothing is spare, whatever the CPUs do.
    bool on_training_device = false;
  };
  explicit SpareCore(const Options& options)
      : options_(options), known_(options.on_training_device) {}

  /// Takes a reading. Ignores one less than a second after the previous one (a tenth of a second
  /// for the first two). nullopt: the system has no readings.
  void Read(const std::optional<CpuReading>& reading);
  /// Whether a reading has decided, rather than the number of threads alone.
  bool known() const { return known_; }
  bool spare() const { return known_ ? spare_ : options_.cores_exceed_threads; }

 private:
  bool Throttled(const CpuReading& reading);

  const Options options_;
  std::optional<CpuReading> last_;
  bool known_;
  bool spare_ = false;
  double throttle_backoff_ = 0;  // seconds of backoff after the newest throttling
  double not_spare_until_ = 0;   // in the time of the readings
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BUDGET_SPARE_CORE_H_
