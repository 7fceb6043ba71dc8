#ifndef PTQWATCH_PROBES_LOSS_PAIRS_H_
#define PTQWATCH_PROBES_LOSS_PAIRS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "probes/paired_loss.h"
#include "probes/probe_result.h"
#include "ptqwatch/report.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {

/// Whether the losses of all units are finite.
bool IsFinite(const UnitLosses& losses);

/// The losses of the same units, without and with quantization. Not thread-safe.
class LossPairs {
 public:
  /// Adds the units of a batch. DataLoss if a quantized loss is not finite; FailedPrecondition if
  /// weights or examples differ.
  absl::Status Add(const UnitLosses& full, const UnitLosses& quantized);

  size_t units() const { return change_.size(); }
  /// The mean change of the loss, and the mean loss without quantization.
  RatioEstimate Change() const { return EstimateRatio(change_, weight_); }
  RatioEstimate FullLoss() const { return EstimateRatio(full_, weight_); }

  /// Fills in the losses of a report, and the accuracies if it is known which examples are correct.
  /// FailedPrecondition if all weights are 0.
  absl::Status FillIn(QuantizationReport& report) const;
  /// The sums of a ProbeSet over the units.
  ProbeSet Sums() const;

 private:
  std::vector<double> quantized_;
  std::vector<double> change_;
  std::vector<double> full_;
  std::vector<double> weight_;
  // Number of examples by unit; empty if it is unknown which are correct.
  std::vector<double> examples_;
  std::vector<double> right_;  // correct with quantization
  std::vector<double> lost_;   // correct without quantization minus `right_`
  std::vector<double> wrong_;  // wrong without quantization
  int64_t tokens_ = 0;
};

/// The mean change from `before` to `after`, by batch, over the batches of both. Absent unless
/// there are some, with the same weights and finite losses.
std::optional<RatioEstimate> ChangeOf(absl::Span<const UnitLosses> before,
                                      absl::Span<const UnitLosses> after);

/// Fills in loss, accuracy and tokens of the full-precision weights, from their losses by batch.
void SumUp(absl::Span<const UnitLosses> batches, QuantizationResult& result);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_LOSS_PAIRS_H_
