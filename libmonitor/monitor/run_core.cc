#include "monitor/run_core.h"

#include <cstdint>
#include <utility>

#include "ATen/Parallel.h"
#include "base/free_memory.h"
#include "budget/grid_stretch.h"

namespace ptqwatch::internal {
namespace {

// 0 if the schedule is not evenly spaced in steps.
int64_t StepsApart(const ScheduleOptions& schedule) {
  return schedule.every_seconds > 0 || schedule.log_spaced_per_decade > 0 ? 0 : schedule.every;
}

ScheduleOptions OfRanks(ScheduleOptions schedule) {
  schedule.decay_density = GridStretch::Density(schedule.decay_density);
  return schedule;
}

}  // namespace

RunCore::RunCore(const MonitorOptions& options, std::unique_ptr<Subject> subject_in,
                 TrainerSwitches* shared)
    : clock(options.clock),
      several_ranks(options.ranks.value_or(1) > 1),
      schedule(several_ranks ? OfRanks(options.schedule) : options.schedule),
      max_overhead(options.max_overhead),
      max_stall_ratio(options.duty_cycle ? 0 : options.max_overhead),
      training_threads(options.training_threads > 0 ? options.training_threads
                                                    : at::get_num_threads()),
      subject(std::move(subject_in)),
      own_switches(StepsApart(schedule)),
      switches(shared != nullptr ? *shared : own_switches) {
  if (several_ranks) {
    own_switches.stretch = switches.stretch = GridStretch(schedule.decay_density).stretch();
  }
  context.clock = clock;
  context.pacer = Pacer(1, clock);
  context.seeds = SeedSource(options.seed);
  context.bytes = std::make_shared<ByteBudget>(options.max_bytes > 0 ? options.max_bytes
                                                                     : FreeMemoryBytes() / 4);
  context.host_bytes = context.bytes;
}

void RunCore::Complete(MonitorStatus& status) const {
  status.overhead_budget_ratio = max_overhead;
  status.memory_bytes = context.bytes->used();
  status.memory_peak_bytes = context.bytes->peak();
  status.memory_budget_bytes = context.bytes->limit();
  trackers.AddTo(status);
  status.every = switches.every;
  status.paused = switches.paused || switches.idle;
}

}  // namespace ptqwatch::internal
