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

  /// Evaluates the first probe batch. The session must have probe and calibration batches and a
  /// plan, and outlive the probe. FailedPrecondition where the losses closure does not fit.
  static absl::StatusOr<std::unique_ptr<QuantizationProbe>> Create(ModelSession& session,
                                                                   const MonitorOptions& options);

  std::string_view name() const override { return kName; }
  ProbeDescription Describe() const override;
  ProbeResult Measure(const ProbeInput& input, const ExecutionContext& context) override;
  ProbeResult NotMeasured(ProbeStatus status, std::string detail) const override;

 private:
  class FullPrecision;
  class Rows;
  QuantizationProbe(ModelSession& session, const MonitorOptions& options);
  absl::Status Compare(FullPrecision& full, const std::vector<Replica::Override>& weights,
                       QuantizationReport& report, const ExecutionContext& context);
  // What calibrating costs, in words, and how often it takes the calibration data through the
  // replica.
  std::pair<std::string, int64_t> DescribeCalibration() const;
  ModelQuantizer Quantizer() const;

  ModelSession& session_;
  const MonitorOptions options_;
  const std::vector<LayerSpecs> specs_;
  double seconds_a_batch_ = 0;  // one forward pass at Create
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_QUANTIZATION_PROBE_H_
