#ifndef PTQWATCH_PROBES_QUANTIZATION_PROBE_H_
#define PTQWATCH_PROBES_QUANTIZATION_PROBE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "probes/probe.h"
#include "probes/quantization_measurement.h"
#include "session/model_session.h"

namespace ptqwatch::internal {

/// Measures the loss added by post-training quantization: quantizes the covered layers with every
/// spec and compares the loss with the full-precision loss on the same tokens.
class QuantizationProbe final : public Probe {
 public:
  static constexpr std::string_view kName = "quantization";

  /// Evaluates the first probe batch and the first calibration batch. The session must have both
  /// kinds of batches and a plan, and must outlive the probe. FailedPrecondition if the losses
  /// closure does not fit.
  static absl::StatusOr<std::unique_ptr<QuantizationProbe>> Create(
      ModelSession& session, const QuantizationOptions& options);

  ProbeNeeds Needs(int64_t available) const override;
  ProbeResult Measure(const ProbeInput& input, const ExecutionContext& context) override;
  ProbeResult NotMeasured(ProbeStatus status, std::string detail) const override;

  /// Tokens of the first calibration batch.
  int64_t calibration_batch_tokens() const { return calibration_batch_tokens_; }
  /// Number of losses (sequences, or 1 for a mean) from the first probe batch.
  int64_t probe_batch_units() const { return probe_batch_units_; }
  /// The most bytes that the work on one layer reserves.
  int64_t layer_bytes() const { return measurement_.LayerBytes(); }

 private:
  QuantizationProbe(ModelSession& session, const QuantizationOptions& options)
      : Probe({.name = kName}), session_(session), measurement_(session, options) {}
  // From timed evaluations and counted arithmetic.
  ProbeCost Cost() const;
  // Empty unless the losses closure returns one value per batch.
  std::string DescribeUnits() const;
  std::string DescribeCalibration(int64_t gram_bytes) const;
  const QuantizationOptions& options() const { return measurement_.options(); }

  ModelSession& session_;
  const QuantizationMeasurement measurement_;
  // Seconds of one forward pass each, timed in Create.
  double probe_batch_seconds_ = 0;
  double calibration_batch_seconds_ = 0;
  int64_t calibration_batch_tokens_ = 0;
  int64_t probe_batch_units_ = 1;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_QUANTIZATION_PROBE_H_
