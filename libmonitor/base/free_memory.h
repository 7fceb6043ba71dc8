#ifndef PTQWATCH_BASE_FREE_MEMORY_H_
#define PTQWATCH_BASE_FREE_MEMORY_H_

#include <cstdint>
#include <string>

#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// Bytes of host memory that the process can still allocate: the minimum of the machine's available
/// memory, the memory left by its cgroups (droppable page cache counts as free) and the memory left
/// by its own limits (RLIMIT_DATA, and RLIMIT_AS minus address space reserved for our threads).
/// INT64_MAX if all are unknown. `root` is put in front of /proc and /sys, for tests; the process's
/// own limits are then ignored. Costs about 0.1 ms.
int64_t FreeMemoryBytes(const std::string& root = "");

/// Sets the limit of `budget` to `max_bytes`, or to the bytes it holds plus half of the free memory
/// if that is less.
void FitBudget(int64_t max_bytes, ByteBudget& budget, const std::string& root = "");

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_FREE_MEMORY_H_
