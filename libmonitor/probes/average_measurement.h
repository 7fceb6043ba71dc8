#ifndef PTQWATCH_PROBES_AVERAGE_MEASUREMENT_H_
#define PTQWATCH_PROBES_AVERAGE_MEASUREMENT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "probes/probe.h"
#include "probes/quantization_measurement.h"
#include "probes/recent_weights.h"
#include "ptqwatch/quantizer.h"
#include "session/model_session.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// The quantizers with which averages are measured, as indices: the watched one, then of each other
/// width of 3 and 4 bits the one that takes the fewest `seconds`.
std::vector<size_t> AveragedQuantizers(const std::vector<QuantizerSpec>& quantizers,
                                       absl::Span<const double> seconds);

/// Measures averages of recent weights: the full-precision loss, and the loss with
/// AveragedQuantizers, on the batches on which the snapshot's own weights were measured with the
/// same quantizer. `session` and `recent` must outlive it.
class AverageMeasurement {
 public:
  AverageMeasurement(ModelSession& session, const QuantizationOptions& quantization,
                     const RecentWeights& recent);

  /// "3-bit GPTQ ... and 4-bit RTN ...": the quantizers.
  std::string Quantizers() const;
  /// Their specs, one per layer of the plan.
  const std::vector<LayerSpecs>& specs() const { return measurement_.specs(); }
  /// Bytes while measuring, if `available` are left.
  int64_t Bytes(int64_t available) const {
    return average_bytes_ + measurement_.PortionFor(available).bytes;
  }

  /// The losses of the loaded weights: those of the earlier QuantizationResult, or measured anew
  /// for quantizers of other ranks. May throw.
  OwnLosses Own(const ProbeInput& input, const ExecutionContext& context) const;

  /// Puts the weights that `average` makes in place of the loaded ones, and fills in the losses of
  /// `report`, or the reason why there are none. `average` may throw.
  void Measure(absl::FunctionRef<std::vector<Replica::Override>()> average, const OwnLosses& own,
               const ProbeInput& input, AveragingReport& report,
               const ExecutionContext& context) const;

 private:
  absl::Status TryMeasure(absl::FunctionRef<std::vector<Replica::Override>()> average,
                          const OwnLosses& own, const ProbeInput& input, AveragingReport& report,
                          const ExecutionContext& context) const;
  QuantizationResult Losses(const ProbeInput& input, const ExecutionContext& context,
                            const std::vector<size_t>& batches) const;

  ModelSession& session_;
  const std::vector<size_t> quantizers_;
  const QuantizationMeasurement measurement_;
  int64_t average_bytes_ = 0;  // for making an average
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_AVERAGE_MEASUREMENT_H_
