#include "monitor/run_core.h"

#include <utility>

#include "ATen/Parallel.h"
#include "base/free_memory.h"
#include "monitor/trainer_options.h"

namespace ptqwatch::internal {

RunCore::RunCore(const MonitorOptions& options, std::unique_ptr<Subject> subject_in,
                 std::shared_ptr<Page> page_in)
    : clock(options.clock),
      schedule(TrainerOptions(options).schedule),
      max_overhead(options.max_overhead),
      training_threads(options.training_threads > 0 ? options.training_threads
                                                    : at::get_num_threads()),
      snapshot_dtype(options.snapshot_dtype.empty() ? std::nullopt
                                                    : std::optional(options.snapshot_dtype)),
      bytes_per_token(options.bytes_per_token > 0 ? std::optional(options.bytes_per_token)
                                                  : std::nullopt),
      subject(std::move(subject_in)),
      page(std::move(page_in)) {
  context.clock = clock;
  context.pacer = Pacer(1, clock);
  context.threads = options.measuring_threads;
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
  status.every = page->switches.every;
  status.paused = page->switches.paused || page->switches.nothing_to_measure;
}

}  // namespace ptqwatch::internal
