#ifndef PTQWATCH_TOOLS_PTQWATCH_REPORT_TABLE_H_
#define PTQWATCH_TOOLS_PTQWATCH_REPORT_TABLE_H_

#include <cstddef>
#include <limits>
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

/// "gptq3"; "gptq3/g64" or "gptq3/row" where the report has several of that method and bit-width.
std::vector<std::string> QuantizerNames(const std::vector<QuantizationReport>& quantization);
/// Positions of the quantizers in the order in which they are shown: 3-bit GPTQ, 4-bit GPTQ, the
/// others as they are.
std::vector<size_t> QuantizerOrder(const std::vector<QuantizationReport>& quantization);

/// "11.89±0.59%", or a short word that says why there is none.
std::string ErrorRatioCell(const QuantizationReport& entry, bool utf8);
/// A measurement that is missing: "failed", "inf/nan", "timeout", "stopped", "off", or "-".
std::string_view MissingCell(ProbeStatus status);
/// With "~" in front where the residual says that it is off by 10 % or more.
std::string TopEigenvalueCell(const CurvatureReport& curvature);
std::string TraceCell(const CurvatureReport& curvature, bool utf8);
/// The distance to the edge of stability, "~" as above; "-" where the trainer passes no optimizer
/// or the report says why there is none.
std::string EdgeCell(const CurvatureReport& curvature);
std::string VerdictCell(VerdictState state, bool color);

/// Lays reports out as rows of a table with as many columns as fit: step, learning rate, phase,
/// probe loss, error of each quantizer, top eigenvalue, trace, edge of stability once there is
/// one, verdict. Columns that do not fit are left out, the other quantizers first, the error of
/// 3-bit GPTQ never. Not thread-safe.
class ReportTable {
 public:
  static constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

  explicit ReportTable(TextStyle style) : style_(style) {}

  struct Lines {
    /// Present for the first row, after RepeatHeader, and when the columns have changed.
    std::optional<std::string> header;
    std::string row;
  };
  /// No line is wider than `columns`.
  Lines Add(const AnalyzedReport& report, size_t columns);
  /// The next row comes with a header.
  void RepeatHeader() { shown_.clear(); }

 private:
  struct Column {
    std::string title;
    std::string text;
    size_t width = 0;
    int rank = 0;  ///< the largest is left out first
    bool left = false;
    std::string_view color = {};
  };

  std::vector<Column> Columns(const AnalyzedReport& analyzed);
  std::string Render(const std::vector<Column>& columns, size_t gap, size_t width,
                     bool header) const;

  TextStyle style_;
  /// Seen so far: a report without them still has their columns.
  std::vector<std::string> quantizers_;
  bool curvature_ = false;
  bool edge_ = false;
  std::map<std::string, size_t> widths_;
  std::vector<std::string> shown_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_REPORT_TABLE_H_
