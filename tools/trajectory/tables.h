#ifndef PTQWATCH_TOOLS_TRAJECTORY_TABLES_H_
#define PTQWATCH_TOOLS_TRAJECTORY_TABLES_H_

#include <string>
#include <vector>

#include "ptqwatch/report.h"
#include "trajectory/checkpoint_meter.h"
#include "trajectory/trajectory_unit.h"

namespace ptqwatch::tools {

/// A row for each report, by branch and step: step, tokens, learning rate, loss, the error of each
/// quantizer, verdict; below it the newest verdict of each branch in a sentence.
std::string ResultTable(std::vector<AnalyzedReport> reports);

/// A row for each unit of --list: number, branch, step, path, predicted seconds and bytes, and
/// whether it is measured.
struct ListedUnit {
  internal::TrajectoryUnit unit;
  std::string state;
};
std::string UnitTable(const std::vector<ListedUnit>& units, const internal::MeterCost& cost);

}  // namespace ptqwatch::tools

#endif  // PTQWATCH_TOOLS_TRAJECTORY_TABLES_H_
