#ifndef PTQWATCH_TOOLS_TRAJECTORY_TABLES_H_
#define PTQWATCH_TOOLS_TRAJECTORY_TABLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ptqwatch/report.h"
#include "trajectory/trajectory_unit.h"

namespace ptqwatch::tools {

/// A row for each report, by branch and step: step, tokens, learning rate, loss, the error of each
/// quantizer, verdict; below it the newest verdict of each branch in a sentence.
std::string ResultTable(std::vector<AnalyzedReport> reports);

struct ListedUnit {
  internal::TrajectoryUnit unit;
  std::string state;
};
/// A row for each unit of --list: number, branch, step, path, seconds of measuring a checkpoint (0:
/// unknown), bytes, and whether it is measured.
std::string UnitTable(const std::vector<ListedUnit>& units, double seconds, int64_t bytes);

}  // namespace ptqwatch::tools

#endif  // PTQWATCH_TOOLS_TRAJECTORY_TABLES_H_
