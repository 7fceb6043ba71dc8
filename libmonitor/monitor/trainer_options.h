#ifndef PTQWATCH_MONITOR_TRAINER_OPTIONS_H_
#define PTQWATCH_MONITOR_TRAINER_OPTIONS_H_

#include <cstdint>
#include <string>

#include "base/strings.h"
#include "budget/grid_stretch.h"
#include "ptqwatch/options.h"

namespace ptqwatch::internal {

/// The options of a monitor that its trainer's half follows.
struct TrainerOptions {
  explicit TrainerOptions(const MonitorOptions& options, bool sharded_in = false)
      : clock(options.clock),
        sharded(sharded_in),
        several_ranks(sharded || options.ranks.value_or(1) > 1),
        schedule(options.schedule),
        max_stall_ratio(options.duty_cycle ? 0 : options.max_overhead) {
    if (several_ranks) schedule.decay_density = GridStretch::Density(schedule.decay_density);
  }

  /// The first value of TrainerSwitches::every.
  int64_t every() const {
    return schedule.every_seconds > 0 || schedule.log_spaced_per_decade > 0 ? 0 : schedule.every;
  }
  /// The first value of TrainerSwitches::stretch.
  int stretch() const { return several_ranks ? GridStretch(schedule.decay_density).stretch() : 0; }

  Clock* clock;
  bool sharded;        ///< other ranks have the rest of the model, and must choose the same steps
  bool several_ranks;  ///< others measure the same run (MonitorOptions::ranks)
  ScheduleOptions schedule;
  /// Share of its time for which noticeable copies may hold training up; 0: no limit.
  double max_stall_ratio;
};

/// The schedule, which must be the same in both halves.
inline std::string TextOf(const ScheduleOptions& schedule) {
  return StrCat("every ", schedule.every, ", every_seconds ", schedule.every_seconds,
                ", log_spaced_per_decade ", schedule.log_spaced_per_decade, ", decay_density ",
                schedule.decay_density);
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_TRAINER_OPTIONS_H_
