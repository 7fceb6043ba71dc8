#ifndef PTQWATCH_TOOLS_PTQWATCH_JOURNAL_TABLES_H_
#define PTQWATCH_TOOLS_PTQWATCH_JOURNAL_TABLES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// Comma-separated values (RFC 4180) without the end of the line: quoted where they must be,
/// numbers with all their digits. What was not measured is empty.
class CsvRow {
 public:
  CsvRow& Add(std::string_view text);
  CsvRow& Add(int64_t value);
  CsvRow& Add(double value);
  template <typename T>
  CsvRow& Add(const std::optional<T>& value) {
    return value ? Add(*value) : Add(std::string_view());
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  bool begun_ = false;
};

/// What HistoryCsv gives, by name, in its order.
std::string HistoryCsvHeader();
/// A line for each quantizer of a report; one without a quantizer where there is none.
std::vector<std::string> HistoryCsv(const AnalyzedReport& report);

/// A layer as the quantizers of a report see it.
struct LayerRow {
  std::string name;
  std::optional<double> trace;         ///< of its Hessian block
  std::optional<double> contribution;  ///< to the loss increase of the watched quantizer, in nats
  /// For each quantizer, in display order; see LayerQuantization::output_error_ratio.
  std::vector<std::optional<double>> output_error_ratios;
};

/// The layers of a report, those first that cost the watched quantizer most: by contribution where
/// it was measured, else by output error.
std::vector<LayerRow> LayersOf(const AnalyzedReport& report);
/// A table of the first `most` layers, below lines that say what its columns are.
std::string LayerTable(const AnalyzedReport& report, size_t most);
/// A line for each layer and quantizer, with a header.
std::vector<std::string> LayerCsv(const AnalyzedReport& report);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_JOURNAL_TABLES_H_
