#ifndef PTQWATCH_PROBES_QUANTIZATION_PROBE_H_
#define PTQWATCH_PROBES_QUANTIZATION_PROBE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "capture/model_quantizer.h"
#include "probes/loss_comparison.h"
#include "probes/probe.h"
#include "ptqwatch/options.h"
#include "session/model_session.h"

namespace ptqwatch::internal {

/// The specs of each quantizer, one a layer of the plan.
std::vector<LayerSpecs> SpecsOfLayers(const MonitorOptions& options, const CapturePlan& plan);

/// Measures what post-training quantization costs: quantizes the covered layers with every spec and
/// compares the loss with the full-precision one on the same tokens. One full-precision pass serves
/// all specs. Holds the quantized weights of as many of them as memory allows, and one Gram pass,
/// at a time.
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
  // What is quantized at a time. No result depends on it.
  struct Portion {
    size_t quantizers = 0;
    int64_t gram_bytes = 0;  // of one pass, at most
    int64_t bytes = 0;       // that all of it takes
  };
  QuantizationProbe(ModelSession& session, const MonitorOptions& options);
  std::string DescribeCalibration(int64_t gram_bytes) const;
  ModelQuantizer Quantizer(const std::vector<Batch>& calibration, int64_t gram_bytes) const;
  // As many quantizers as fit, then as many Gram matrices.
  Portion PortionFor(int64_t available) const;
  // Of one quantizer.
  int64_t WeightBytes() const { return 4 * session_.plan().covered_parameters; }
  // Quantizes and compares the quantizers from `first` until before `end`.
  void MeasurePortion(size_t first, size_t end, const Portion& portion, const ProbeInput& input,
                      LossComparison& comparison, QuantizationResult& result,
                      std::map<std::string, double>& cost_seconds,
                      const ExecutionContext& context) const;

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
