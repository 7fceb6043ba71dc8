#ifndef PTQWATCH_PROBES_QUANTIZATION_PROBE_H_
#define PTQWATCH_PROBES_QUANTIZATION_PROBE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "probes/probe.h"
#include "probes/quantization_measurement.h"
#include "ptqwatch/options.h"
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
  static absl::StatusOr<std::unique_ptr<QuantizationProbe>> Create(ModelSession& session,
                                                                   const MonitorOptions& options);

  std::string_view name() const override { return kName; }
  ProbeDescription Describe(int64_t available) const override;
  ProbeResult Measure(const ProbeInput& input, const ExecutionContext& context) override;
  ProbeResult NotMeasured(ProbeStatus status, std::string detail) const override;

  /// Seconds that evaluating the first probe or calibration batch took at Create, and the tokens of
  /// the latter.
  double probe_batch_seconds() const { return probe_batch_seconds_; }
  double calibration_batch_seconds() const { return calibration_batch_seconds_; }
  int64_t calibration_batch_tokens() const { return calibration_batch_tokens_; }
  /// Values of the loss (sequences, or 1 for a mean) that the first probe batch gives.
  int64_t probe_batch_units() const { return probe_batch_units_; }

 private:
  QuantizationProbe(ModelSession& session, const MonitorOptions& options)
      : session_(session), measurement_(session, options) {}
  // Empty unless the losses closure returns one value a batch.
  std::string DescribeUnits() const;
  std::string DescribeCalibration(int64_t gram_bytes) const;
  const MonitorOptions& options() const { return measurement_.options(); }

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
