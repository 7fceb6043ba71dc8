#ifndef PTQWATCH_MONITOR_SPARE_CORE_H_
#define PTQWATCH_MONITOR_SPARE_CORE_H_

#include <optional>

#include "base/cpu_reading.h"

namespace ptqwatch::internal {

/// Tells whether the machine has a core that training does not use.
///
/// It has one if the CPUs that the process may use were idle, or the monitor's own, for most of one
/// core over the last second or more. It has none while a cgroup's quota stops the process: 10
/// seconds after that another attempt is made, after twice as many each time it happens again, up
/// to 10 minutes. One thread at a time.
class SpareCore {
 public:
  struct Options {
    /// Decides while there are no readings.
    bool cores_exceed_threads = false;
    /// CPU time a second that the process may use; less than its CPUs under a cgroup quota.
    std::optional<double> quota_cores = {};
    /// A GPU that trains does the work, which is never spare, whatever the CPUs are.
    bool on_training_device = false;
  };
  explicit SpareCore(const Options& options)
      : options_(options), known_(options.on_training_device) {}

  /// Takes a reading; one less than a second after the previous one (for the first two: a tenth) is
  /// ignored. Nothing means that the system has none.
  void Read(const std::optional<CpuReading>& reading);
  /// Whether a reading has decided, and not only the number of threads.
  bool known() const { return known_; }
  bool spare() const { return known_ ? spare_ : options_.cores_exceed_threads; }

 private:
  bool Throttled(const CpuReading& reading);

  const Options options_;
  std::optional<CpuReading> last_;
  bool known_;
  bool spare_ = false;
  double throttle_backoff_ = 0;  // after the newest throttling
  double not_spare_until_ = 0;   // by the reading's clock
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_SPARE_CORE_H_
