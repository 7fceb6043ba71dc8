#ifndef PTQWATCH_JOURNAL_RANK_DIRECTORY_H_
#define PTQWATCH_JOURNAL_RANK_DIRECTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ptqwatch/config.h"

namespace ptqwatch::internal {

/// The run directory of one rank, within that of a run of several: RUN_DIR/rank-0003.
PTQWATCH_EXPORT std::string RankDirectory(const std::string& run_dir, int64_t rank);

/// The ranks that have a directory in `run_dir`, ascending. Empty if it cannot be read.
PTQWATCH_EXPORT std::vector<int64_t> RanksIn(const std::string& run_dir);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_RANK_DIRECTORY_H_
