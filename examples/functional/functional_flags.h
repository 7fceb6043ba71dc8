#ifndef PTQWATCH_FUNCTIONAL_FUNCTIONAL_FLAGS_H_
#define PTQWATCH_FUNCTIONAL_FUNCTIONAL_FLAGS_H_

#include <optional>
#include <string>

#include "train.h"
#include "trainer_flags.h"

namespace ptqwatch::examples {

/// Defaults: a run of under a minute on one core that shows the decay spike of arXiv 2510.06213.
struct FunctionalFlags {
  TrainerFlags trainer;
  std::string text;   ///< empty: the King James Bible
  bool wait = false;  ///< training waits for each snapshot, so that none is skipped
  Recipe recipe = {.steps = 12000, .peak_learning_rate = 1.5e-2, .weight_decay = 0.1, .batch = 512};
};

/// Nothing where the program is to go on; else its exit code.
std::optional<int> ParseFunctionalFlags(int argc, char** argv, FunctionalFlags* flags);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_FUNCTIONAL_FUNCTIONAL_FLAGS_H_
