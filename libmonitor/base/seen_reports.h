#ifndef PTQWATCH_BASE_SEEN_REPORTS_H_
#define PTQWATCH_BASE_SEEN_REPORTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// Remembers reports that were delivered: by series (run_id, branch, rank) and within it by
/// (attempt, sequence). Not thread-safe.
class SeenReports {
 public:
  /// False if a report of this series that is as new or newer was added.
  bool Add(const Report& report) {
    const std::pair<int, int64_t> place(report.attempt, report.sequence);
    const auto [known, added] = newest_.try_emplace(
        {report.run_id, report.branch.value_or(""), report.rank.value_or(0)}, place);
    if (added) return true;
    if (place <= known->second) return false;
    known->second = place;
    return true;
  }

 private:
  std::map<std::tuple<std::string, std::string, int64_t>, std::pair<int, int64_t>> newest_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_SEEN_REPORTS_H_
