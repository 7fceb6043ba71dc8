#ifndef PTQWATCH_BASE_FREE_MEMORY_H_
#define PTQWATCH_BASE_FREE_MEMORY_H_

#include <cstdint>
#include <string>

#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// Bytes of host memory that the process can still take: what the machine has available, what the
/// memory limits of its cgroups leave (page cache that can be dropped counts as free), and what its
/// own limits do (RLIMIT_AS without what our threads reserve of it, RLIMIT_DATA), whichever is
/// least. INT64_MAX where nothing is known.
/// `root` replaces "" in front of /proc and /sys, for tests; the process's own limits are then left
/// out. Costs about 0.1 ms.
int64_t FreeMemoryBytes(const std::string& root = "");

/// Sets the limit of `budget` to `max_bytes`, or to what it holds and half of what is free, where
/// that is less.
void FitBudget(int64_t max_bytes, ByteBudget& budget, const std::string& root = "");

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_FREE_MEMORY_H_
