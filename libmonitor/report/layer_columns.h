#ifndef PTQWATCH_REPORT_LAYER_COLUMNS_H_
#define PTQWATCH_REPORT_LAYER_COLUMNS_H_

#include <string>

#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// Converts a report to one line of JSON that FromJson reads, shorter than ToJson's: lists by layer
/// or parameter are columns. For `"layers": [{"name": "a", "damp": 0.01, "tokens": 8}, {"name":
/// "b", "tokens": 8}]` it has
///
///     "layers_columns": {"name": 2, "damp": [0.01, null], "tokens": 8}
///
/// where `name` has indices into the report's `layer_names`, or a number n for 0 to n - 1. A value
/// that all rows share stands for the column, and the key of an earlier column for an equal one.
/// Numbers that are not integers have three significant digits, about as many as calibration data
/// support.
std::string ToColumnJson(const AnalyzedReport& report);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_LAYER_COLUMNS_H_
