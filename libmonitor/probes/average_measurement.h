#ifndef PTQWATCH_PROBES_AVERAGE_MEASUREMENT_H_
#define PTQWATCH_PROBES_AVERAGE_MEASUREMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "probes/probe.h"
#include "probes/quantization_measurement.h"
#include "probes/recent_weights.h"
#include "session/model_session.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// Measures averages of recent weights: the full-precision loss, and the loss with the watched
/// quantizer. `session` and `recent` must outlive it.
class AverageMeasurement {
 public:
  /// `quantization` must include the watched quantizer.
  AverageMeasurement(ModelSession& session, const QuantizationOptions& quantization,
                     const RecentWeights& recent);

  /// "3-bit GPTQ ...": the watched quantizer.
  std::string Watched() const;
  /// Its specs, one per layer of the plan.
  const std::vector<LayerSpecs>& specs() const { return measurement_.specs(); }
  /// Bytes while measuring, if `available` are left.
  int64_t Bytes(int64_t available) const {
    return average_bytes_ + measurement_.PortionFor(available).bytes;
  }

  /// Puts the weights that `average` makes in place of the loaded ones, and fills in the losses of
  /// `report`, or the reason why there are none. `average` may throw.
  void Measure(absl::FunctionRef<std::vector<Replica::Override>()> average, const ProbeInput& input,
               AveragingReport& report, const ExecutionContext& context) const;

 private:
  absl::Status TryMeasure(absl::FunctionRef<std::vector<Replica::Override>()> average,
                          const ProbeInput& input, AveragingReport& report,
                          const ExecutionContext& context) const;

  ModelSession& session_;
  const QuantizationMeasurement measurement_;
  int64_t average_bytes_ = 0;  // for making an average
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_AVERAGE_MEASUREMENT_H_
