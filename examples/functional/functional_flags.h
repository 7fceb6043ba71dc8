#ifndef PTQWATCH_FUNCTIONAL_FUNCTIONAL_FLAGS_H_
#define PTQWATCH_FUNCTIONAL_FUNCTIONAL_FLAGS_H_

#include "train.h"
#include "trainer_flags.h"

namespace ptqwatch::examples {

/// By default, a run of under a minute on one core that shows the decay spike of arXiv 2510.06213.
struct FunctionalFlags {
  TrainerFlags trainer;
  Recipe recipe = {.steps = 12000, .peak_learning_rate = 1.5e-2, .weight_decay = 0.1, .batch = 512};
};

/// Throws UsageError for a mistake. --help ends the process.
FunctionalFlags ParseFunctionalFlags(int argc, char** argv);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_FUNCTIONAL_FUNCTIONAL_FLAGS_H_
