#ifndef PTQWATCH_RANKS_RANKS_FLAGS_H_
#define PTQWATCH_RANKS_RANKS_FLAGS_H_

#include <cstdint>
#include <string>

#include "char_gpt_flags.h"

namespace ptqwatch::examples {

struct RanksFlags {
  CharGptFlags recipe;
  int64_t rank = 0;
  int64_t ranks = 1;
  std::string store;  ///< where the ranks exchange gradients
  double timeout_seconds = 300;
  bool sharded = false;     ///< each rank keeps a part of each parameter
  std::string checkpoints;  ///< folder; empty: none are written
  int64_t checkpoint_every = 100;
  int64_t flip_step = 0;  ///< after this step a bit of the weights flips; 0: never
  int64_t flip_rank = 0;
};

/// Throws UsageError for a mistake. --help ends the process.
RanksFlags ParseRanksFlags(int argc, char** argv);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_RANKS_RANKS_FLAGS_H_
