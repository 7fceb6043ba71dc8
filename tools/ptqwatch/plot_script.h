#ifndef PTQWATCH_TOOLS_PTQWATCH_PLOT_SCRIPT_H_
#define PTQWATCH_TOOLS_PTQWATCH_PLOT_SCRIPT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

struct PlottedRun {
  std::string name;  ///< any text
  std::vector<AnalyzedReport> reports;
};

enum class PlotFormat { kSvg, kPng };

struct PlotOptions {
  PlotFormat format = PlotFormat::kSvg;
  int width = 1200;  ///< pixels
  int height = 1000;
  bool dark = false;
  /// As QuantizerNames has them. Empty: all of one run, the first in display order of several.
  std::vector<std::string> quantizers = {};
};

/// A script of gnuplot that draws the runs over each other: loss and quantized losses, relative
/// loss increase E with two standard errors, learning rate, curvature. Decays are shaded; where
/// quantization began to suffer and where an alarm began are marked. What was not measured is a
/// gap. Nothing in a name can be a command. NotFound for a quantizer that no run has, and without a
/// report.
absl::StatusOr<std::string> PlotScript(const std::vector<PlottedRun>& runs,
                                       const PlotOptions& options);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_PLOT_SCRIPT_H_
