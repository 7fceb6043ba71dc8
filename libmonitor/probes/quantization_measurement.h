#ifndef PTQWATCH_PROBES_QUANTIZATION_MEASUREMENT_H_
#define PTQWATCH_PROBES_QUANTIZATION_MEASUREMENT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "capture/layer_selection.h"
#include "capture/model_quantizer.h"
#include "probes/loss_comparison.h"
#include "probes/probe.h"
#include "ptqwatch/options.h"
#include "session/model_session.h"

namespace ptqwatch::internal {

/// What is tried on the weights, as in MonitorOptions.
struct QuantizationOptions {
  std::vector<QuantizerSpec> quantizers = {};
  SpecOverrides overrides = {};
  CalibrationMode calibration_mode = CalibrationMode::kOneShot;
  int64_t max_gram_bytes = 0;
  ComparisonOptions comparison = {};
};
QuantizationOptions QuantizationOptionsOf(const MonitorOptions& options);

/// Quantizes the loaded weights with a list of quantizers and compares the losses. One
/// full-precision pass serves all of them. Holds the quantized weights of as many as memory allows,
/// and one Gram pass, at a time.
class QuantizationMeasurement {
 public:
  /// What is quantized at a time. No result depends on it.
  struct Portion {
    size_t quantizers = 0;
    int64_t gram_bytes = 0;  ///< of one pass, at most
    int64_t bytes = 0;       ///< that all of it takes
  };

  /// Measures `options.quantizers`. The session must have probe and calibration batches and a plan,
  /// and outlive this.
  QuantizationMeasurement(ModelSession& session, QuantizationOptions options);

  /// As many quantizers as fit, then as many Gram matrices.
  Portion PortionFor(int64_t available) const;
  /// Of one quantizer.
  int64_t WeightBytes() const { return 4 * session_.plan().covered_parameters; }
  ModelQuantizer Quantizer(const std::vector<Batch>& calibration, int64_t gram_bytes) const;
  /// The specs of each quantizer, one a layer of the plan.
  const std::vector<LayerSpecs>& specs() const { return specs_; }
  const QuantizationOptions& options() const { return options_; }
  /// The most that the work on one layer reserves.
  int64_t LayerBytes() const;

  /// Measures what is loaded, with the plan of `input`. Adds to `cost_seconds` by part. May throw.
  QuantizationResult Measure(const ProbeInput& input, std::map<std::string, double>& cost_seconds,
                             const ExecutionContext& context) const;

 private:
  // Quantizes and compares the quantizers from `first` until before `end`.
  void MeasurePortion(size_t first, size_t end, const Portion& portion, const ProbeInput& input,
                      LossComparison& comparison, QuantizationResult& result,
                      std::map<std::string, double>& cost_seconds,
                      const ExecutionContext& context) const;

  ModelSession& session_;
  const QuantizationOptions options_;
  const std::vector<LayerSpecs> specs_;  // [quantizer][layer]
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_QUANTIZATION_MEASUREMENT_H_
