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

/// Column names of HistoryCsv, in order.
std::string HistoryCsvHeader();
/// A line for each quantizer of a report, or one line without a quantizer if there are none.
std::vector<std::string> HistoryCsv(const AnalyzedReport& report);

/// The results of a report's quantizers for one layer.
struct LayerRow {
  std::string name;
  std::optional<int64_t> stacked;  ///< as LayerQuantization::stacked
  int64_t tokens = 0;              ///< as LayerQuantization::tokens
  /// The fault of its calibration: "too few", or "3 of 64 not ok" of a stack; else empty.
  std::string lacking;
  std::optional<double> trace;         ///< of its Hessian block
  std::optional<double> contribution;  ///< to the loss increase of the watched quantizer, in nats
  std::optional<double> entropy_bits;  ///< of the watched quantizer's codes
  /// For each quantizer, in display order; see LayerQuantization::output_error_ratio.
  std::vector<std::optional<double>> output_error_ratios;
};

/// The layers of a report, highest cost for the watched quantizer first: by contribution if it was
/// measured, else by output error.
std::vector<LayerRow> LayersOf(const AnalyzedReport& report);
/// A table of the first `most` layers, below lines that explain its columns. Has a column of tokens
/// if layers met different numbers of them, as experts do, or some met too few, and one of bits if
/// sizes were measured.
std::string LayerTable(const AnalyzedReport& report, size_t most);
/// A line for each layer and quantizer, with a header.
std::vector<std::string> LayerCsv(const AnalyzedReport& report);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_JOURNAL_TABLES_H_
