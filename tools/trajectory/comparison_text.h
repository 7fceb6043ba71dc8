#ifndef PTQWATCH_TOOLS_TRAJECTORY_COMPARISON_TEXT_H_
#define PTQWATCH_TOOLS_TRAJECTORY_COMPARISON_TEXT_H_

#include <string>

#include "ptqwatch/report.h"
#include "streamed/compare_losses.h"

namespace ptqwatch::tools {

/// One of two models that are compared.
struct ComparedModel {
  std::string path = {};          ///< as it was given
  std::string architecture = {};  ///< internal::ModelFacts
  Report report = {};
};

/// Two models, measured with the same tokens and quantizers, and B minus A.
struct ModelComparison {
  ComparedModel a = {};
  ComparedModel b = {};
  internal::LossesDifference difference = {};
};

/// A line for each model; a row without quantization and one for each quantizer, with loss and E of
/// both models and their differences with standard errors; a line for each quantizer that failed.
std::string ComparisonTable(const ModelComparison& comparison);

/// A header, and a line for each quantizer. Columns of both models have the names of `ptqwatch
/// history --csv` and end in _a and _b.
std::string ComparisonCsv(const ModelComparison& comparison);

/// One line: the reports of both models, as `ptqwatch history --json` prints them but without a
/// verdict, and the differences. Numbers that were not measured are absent.
std::string ComparisonJson(const ModelComparison& comparison);

}  // namespace ptqwatch::tools

#endif  // PTQWATCH_TOOLS_TRAJECTORY_COMPARISON_TEXT_H_
