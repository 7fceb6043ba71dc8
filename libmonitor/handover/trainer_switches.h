#ifndef PTQWATCH_HANDOVER_TRAINER_SWITCHES_H_
#define PTQWATCH_HANDOVER_TRAINER_SWITCHES_H_

#include <atomic>
#include <cstdint>
#include <limits>

namespace ptqwatch::internal {

/// Values that the measuring half passes to OnStep. The monitor thread writes, OnStep only reads.
struct TrainerSwitches {
  explicit TrainerSwitches(int64_t every_in, int stretch_in = 0)
      : every(every_in), stretch(stretch_in) {}

  /// Steps between snapshots, or 0 to follow the schedule's options.
  std::atomic<int64_t> every;
  /// With several ranks, one in 2^stretch points of their common grid is taken (GridStretch).
  std::atomic<int> stretch;
  std::atomic<bool> paused{false};              ///< by a command
  std::atomic<bool> nothing_to_measure{false};  ///< copies would be wasted
  std::atomic<int64_t> requests{0};             ///< snapshots requested so far
  std::atomic<bool> measuring{false};           ///< the monitor works
  std::atomic<bool> busy{false};                ///< at a snapshot, with the jobs that begin with it
  /// Due snapshots before this time are skipped; monotonic time of the clock.
  std::atomic<int64_t> rest_until_ns{0};
  /// Seconds that an additional snapshot takes until the next one may come.
  std::atomic<double> additional_seconds{std::numeric_limits<double>::infinity()};
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HANDOVER_TRAINER_SWITCHES_H_
