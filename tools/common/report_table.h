#ifndef PTQWATCH_TOOLS_COMMON_REPORT_TABLE_H_
#define PTQWATCH_TOOLS_COMMON_REPORT_TABLE_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ptqwatch/report.h"

namespace ptqwatch::internal {

struct TextStyle {
  bool utf8 = false;
  bool color = false;
};

/// "gptq3"; "gptq3/g64" or "gptq3/row" if the report has several with that method and bit-width.
std::vector<std::string> QuantizerNames(const std::vector<QuantizationReport>& quantization);
/// Positions of the quantizers in display order: 3-bit GPTQ, 4-bit GPTQ, then the others in the
/// report's order.
std::vector<size_t> QuantizerOrder(const std::vector<QuantizationReport>& quantization);

/// "11.89±0.59%", or MissingCell.
std::string ErrorRatioCell(const QuantizationReport& entry, bool utf8);
std::string ErrorRatioCell(const PooledLoss& pooled, bool utf8);
/// Text for a missing measurement: "failed", "inf/nan", "timeout", "stopped", "off",
/// "other", or "-".
std::string_view MissingCell(ProbeStatus status);
/// Starts with "~" if the residual is 10 % or more.
std::string TopEigenvalueCell(const CurvatureReport& curvature);
std::string TraceCell(const CurvatureReport& curvature, bool utf8);
/// The distance to the edge of stability, "~" as above; "-" if it was not measured.
std::string EdgeCell(const CurvatureReport& curvature);
std::string VerdictCell(VerdictState state, bool color);
/// An escape sequence, or empty: alarms are red, and states that may become alarms are yellow.
std::string_view VerdictColor(VerdictState state);
/// The entry of the quantizer that the verdict is about, or else the first one to display, or null.
const QuantizationReport* WatchedQuantizer(const AnalyzedReport& report);

/// Formats reports as rows of a table with as many columns as fit: branch (after the first report
/// that has one), step, learning rate, phase, probe loss, error of each quantizer, that on all sets
/// of probe batches (after the first report that has them), top eigenvalue, trace, edge of
/// stability (after its first measurement), verdict ("decay" is short for decay_degradation).
/// Columns that do not fit are omitted: other quantizers first, the first quantizer (3-bit GPTQ if
/// there is one) never. Not thread-safe.
class ReportTable {
 public:
  explicit ReportTable(TextStyle style) : style_(style) {}

  struct Lines {
    /// Present for the first row, after RepeatHeader, and when the columns have changed.
    std::optional<std::string> header;
    std::string row;
  };
  /// No line is wider than `columns`.
  Lines Add(const AnalyzedReport& report, size_t columns);
  /// Adds a header to the next row.
  void RepeatHeader() { shown_.clear(); }

 private:
  struct Column {
    std::string title;
    std::string text;
    size_t width = 0;
    int rank = 0;  ///< columns with the largest rank are omitted first
    bool left = false;
    std::string_view color = {};
  };

  std::vector<Column> Columns(const AnalyzedReport& analyzed);
  std::string Render(const std::vector<Column>& columns, size_t gap, size_t width,
                     bool header) const;

  TextStyle style_;
  /// Quantizers seen so far; later reports keep their columns.
  std::vector<std::string> quantizers_;
  bool branch_ = false;
  bool pooled_ = false;
  bool curvature_ = false;
  bool edge_ = false;
  std::map<std::string, size_t> widths_;
  std::vector<std::string> shown_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_COMMON_REPORT_TABLE_H_
