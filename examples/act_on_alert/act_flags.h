#ifndef PTQWATCH_ACT_ON_ALERT_ACT_FLAGS_H_
#define PTQWATCH_ACT_ON_ALERT_ACT_FLAGS_H_

#include <cstdint>

#include "char_gpt_flags.h"

namespace ptqwatch::examples {

/// How the trainer reacts to an alarm.
enum class Act {
  kIgnore,   ///< nothing
  kStop,     ///< ends the decay: the learning rate stays at its value
  kAverage,  ///< like kStop; the run ends with the mean of the last copies of the weights
};

struct ActFlags {
  CharGptFlags recipe;
  Act act = Act::kAverage;
  int64_t average_every = 0;    ///< steps between copies of the weights
  int64_t average_window = 10;  ///< copies in the mean
};

/// Throws UsageError for a mistake. --help ends the process.
ActFlags ParseActFlags(int argc, char** argv);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_ACT_ON_ALERT_ACT_FLAGS_H_
