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

/// Measures what post-training quantization costs: quantizes the covered layers with every spec and
/// compares the loss with the full-precision one on the same tokens.
class QuantizationProbe final : public Probe {
 public:
  static constexpr std::string_view kName = "quantization";

  /// Evaluates the first probe and calibration batch. The session must have probe and calibration
  /// batches and a plan, and outlive the probe. FailedPrecondition where the losses closure does
  /// not fit.
  static absl::StatusOr<std::unique_ptr<QuantizationProbe>> Create(
      ModelSession& session, const QuantizationOptions& options);

  ProbeNeeds Needs(int64_t available) const override;
  ProbeResult Measure(const ProbeInput& input, const ExecutionContext& context) override;
  ProbeResult NotMeasured(ProbeStatus status, std::string detail) const override;

  /// Tokens of the first calibration batch.
  int64_t calibration_batch_tokens() const { return calibration_batch_tokens_; }
  /// Values of the loss (sequences, or 1 for a mean) that the first probe batch gives.
  int64_t probe_batch_units() const { return probe_batch_units_; }
  /// The most that the work on one layer reserves.
  int64_t layer_bytes() const { return measurement_.LayerBytes(); }

 private:
  QuantizationProbe(ModelSession& session, const QuantizationOptions& options)
      : Probe({.name = kName}), session_(session), measurement_(session, options) {}
  // Evaluations were timed, arithmetic is counted.
  ProbeCost Cost() const;
  // Empty unless the losses closure returns one value a batch.
  std::string DescribeUnits() const;
  std::string DescribeCalibration(int64_t gram_bytes) const;
  const QuantizationOptions& options() const { return measurement_.options(); }

  ModelSession& session_;
  const QuantizationMeasurement measurement_;
  // One forward pass each, at Create.
  double probe_batch_seconds_ = 0;
  double calibration_batch_seconds_ = 0;
  int64_t calibration_batch_tokens_ = 0;
  int64_t probe_batch_units_ = 1;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_QUANTIZATION_PROBE_H_
