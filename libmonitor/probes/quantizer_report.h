#ifndef PTQWATCH_PROBES_QUANTIZER_REPORT_H_
#define PTQWATCH_PROBES_QUANTIZER_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "capture/quantize_backend.h"
#include "ptqwatch/quantizer.h"
#include "ptqwatch/report.h"
#include "ptqwatch/stored_size.h"

namespace ptqwatch::internal {

/// The report of a quantizer before it was measured.
QuantizationReport ReportOf(const QuantizerSpec& spec);

/// Sets the status of a report, and its detail if the status is not ok.
void SetStatus(const absl::Status& status, QuantizationReport& report);

/// One layer under one quantizer.
struct QuantizedLayerRow {
  LayerQuantization report;
  std::string nonfinite = {};  ///< the NaN or infinity because of which there are no codes
  int64_t parameters = 0;      ///< elements of the weight; 0 if it is left as it is
  double squared_displacement = 0;
  double output_energy = 0;  ///< tr(W H W^T), proportional to the squared output of a token
  std::optional<StoredSize> stored = {};  ///< as QuantizedMatrix::stored
};

/// The row of a layer with this result. `gram` may be null.
QuantizedLayerRow RowOf(std::string_view layer, const QuantizerSpec& spec, const LayerGram* gram,
                        const QuantizedMatrix& result, int64_t parameters);

/// Adds the rows of all layers, in order and grouped (GroupLayers), to the report of their
/// quantizer. `all_parameters`
/// counts the parameters of the model. DataLoss, naming the layer, if one is not finite.
absl::Status AddRows(std::vector<QuantizedLayerRow> rows, int64_t all_parameters,
                     QuantizationReport& report);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_QUANTIZER_REPORT_H_
