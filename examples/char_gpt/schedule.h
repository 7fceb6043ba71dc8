#ifndef PTQWATCH_CHAR_GPT_SCHEDULE_H_
#define PTQWATCH_CHAR_GPT_SCHEDULE_H_

#include <cstdint>

#include "ptqwatch/report.h"

namespace ptqwatch::examples {

enum class ScheduleKind {
  kWsd,       ///< warm-up, plateau, then to zero over the last `decay_steps`
  kCosine,    ///< warm-up, then half a cosine to zero
  kConstant,  ///< warm-up, then the peak
};

/// The learning rates of a run. The first step is step 0. A decaying rate reaches zero one step
/// after the last.
struct Schedule {
  ScheduleKind kind = ScheduleKind::kWsd;
  double peak = 1e-2;
  int64_t steps = 0;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;
  DecayShape shape = DecayShape::kLinear;  ///< kWsd only

  double LearningRate(int64_t step) const;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_CHAR_GPT_SCHEDULE_H_
