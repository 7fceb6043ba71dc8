#ifndef PTQWATCH_BASE_HUGE_PAGES_H_
#define PTQWATCH_BASE_HUGE_PAGES_H_

#include <cstddef>
#include <vector>

namespace ptqwatch::internal {

/// Asks the kernel for huge pages in memory that nothing has written to yet: the first writes then
/// cost a fault every 2 MB, not every 4 KB. Does nothing for less than 32 MB, which malloc keeps
/// for the next request, or if the system has no huge pages
/// (/sys/kernel/mm/transparent_hugepage/enabled is "never").
void AdviseHugePages(void* data, size_t bytes);

/// Reserves room for `count` values in an empty vector, in huge pages.
template <typename T>
void ReserveHuge(size_t count, std::vector<T>* values) {
  values->reserve(count);
  AdviseHugePages(values->data(), values->capacity() * sizeof(T));
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_HUGE_PAGES_H_
