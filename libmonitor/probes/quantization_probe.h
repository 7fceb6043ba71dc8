#ifndef PTQWATCH_PROBES_QUANTIZATION_PROBE_H_
#define PTQWATCH_PROBES_QUANTIZATION_PROBE_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "capture/model_quantizer.h"
#include "probes/probe.h"
#include "ptqwatch/options.h"
#include "session/model_session.h"

namespace ptqwatch::internal {

/// The specs of each quantizer, one a layer of the plan.
std::vector<LayerSpecs> SpecsOfLayers(const MonitorOptions& options, const CapturePlan& plan);

/// Measures what post-training quantization costs: quantizes the covered layers with every spec and
/// compares the loss with the full-precision one on the same tokens. One full-precision pass serves
/// all specs. Holds the quantized weights of all of them, and one Gram pass, at a time.
class QuantizationProbe final : public Probe {
 public:
  static constexpr std::string_view kName = "quantization";

  /// Evaluates the first probe and calibration batch. The session must have probe and calibration
  /// batches and a plan, and outlive the probe. FailedPrecondition where the losses closure does
  /// not fit.
  static absl::StatusOr<std::unique_ptr<QuantizationProbe>> Create(ModelSession& session,
                                                                   const MonitorOptions& options);

  std::string_view name() const override { return kName; }
  ProbeDescription Describe() const override;
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
  class Rows;
  QuantizationProbe(ModelSession& session, const MonitorOptions& options);
  std::string DescribeCalibration() const;
  ModelQuantizer Quantizer(const std::vector<Batch>& calibration) const;

  ModelSession& session_;
  const MonitorOptions options_;
  const std::vector<LayerSpecs> specs_;
  // One forward pass each, at Create.
  double probe_batch_seconds_ = 0;
  double calibration_batch_seconds_ = 0;
  int64_t calibration_batch_tokens_ = 0;
  int64_t probe_batch_units_ = 1;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_QUANTIZATION_PROBE_H_
