#ifndef PTQWATCH_PROBES_QUANTIZATION_MEASUREMENT_H_
#define PTQWATCH_PROBES_QUANTIZATION_MEASUREMENT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/reservation.h"
#include "capture/layer_selection.h"
#include "capture/model_quantizer.h"
#include "probes/loss_comparison.h"
#include "probes/probe.h"
#include "probes/quantized_layers.h"
#include "ptqwatch/options.h"
#include "session/model_session.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// The quantizers to try and how to compare them, as in MonitorOptions.
struct QuantizationOptions {
  std::vector<QuantizerSpec> quantizers = {};
  SpecOverrides overrides = {};
  CalibrationMode calibration_mode = CalibrationMode::kOneShot;
  int64_t max_gram_bytes = 0;
  ComparisonOptions comparison = {};
  bool artifact_size = false;
  /// The rank that measures each quantizer, and this rank; empty: all are measured here.
  std::vector<int64_t> owners = {};
  int64_t rank = 0;

  bool Owns(size_t quantizer) const { return owners.empty() || owners[quantizer] == rank; }
};
/// Without artifact_size, which is for the snapshot's own weights alone.
QuantizationOptions QuantizationOptionsOf(const MonitorOptions& options);

/// Quantizes the loaded weights with a list of quantizers and compares the losses. All share one
/// full-precision pass. Holds the quantized weights of as many quantizers as memory allows, and one
/// Gram pass, at a time. Quantizers of other ranks have the status kOtherRank and no numbers.
class QuantizationMeasurement {
 public:
  /// The work done at a time. No result depends on it.
  struct Portion {
    size_t quantizers = 0;
    int64_t gram_bytes = 0;  ///< of one pass, at most
    int64_t bytes = 0;       ///< for the whole portion
  };

  /// Measures `options.quantizers`. The session must have probe and calibration batches and a plan,
  /// and must outlive this.
  QuantizationMeasurement(ModelSession& session, QuantizationOptions options);

  /// As many quantizers as fit, then as many Gram matrices.
  Portion PortionFor(int64_t available) const;
  /// Bytes of one quantizer's weights.
  int64_t WeightBytes() const { return 4 * session_.plan().covered_parameters; }
  ModelQuantizer Quantizer(const std::vector<Batch>& calibration, int64_t gram_bytes) const;
  /// The quantizers that this rank measures, as indices of options().quantizers.
  const std::vector<size_t>& quantizers() const { return quantizers_; }
  /// The specs of each of these, one per layer of the plan.
  const std::vector<LayerSpecs>& specs() const { return specs_; }
  const QuantizationOptions& options() const { return options_; }
  /// The most bytes that the work on one layer reserves.
  int64_t LayerBytes() const;

  /// The result before a measurement: a report of each quantizer, without numbers.
  QuantizationResult NothingMeasured() const;
  /// Quantizes the loaded weights with the plan of `input` and the first of quantizers(), without
  /// comparing losses. Holds the memory of the result in `held`. May throw.
  absl::StatusOr<std::vector<Replica::Override>> Quantize(const ProbeInput& input,
                                                          Reservation& held,
                                                          const ExecutionContext& context) const;
  /// Measures the loaded weights with the plan of `input`. Adds seconds by part to `cost_seconds`.
  /// `batches`: number of probe batches for each quantizer; 0, or no entry: until precise enough.
  /// May throw.
  QuantizationResult Measure(const ProbeInput& input, std::map<std::string, double>& cost_seconds,
                             const ExecutionContext& context,
                             const std::vector<size_t>& batches = {}) const;

 private:
  // A part of the quantizers, as indices of quantizers_. `whole`: it is all of them.
  struct Part {
    size_t first = 0;
    size_t count = 0;
    int64_t gram_bytes = 0;
    bool whole = true;
    std::vector<size_t> batches;  // for each quantizer
  };
  // Quantizes into `layers`, which has these specs.
  QuantizationRun Run(const std::vector<LayerSpecs>& specs, int64_t gram_bytes,
                      const ProbeInput& input, QuantizedLayers& layers,
                      const ExecutionContext& context) const;
  // Quantizes and compares.
  void MeasurePart(const Part& part, const ProbeInput& input, LossComparison& comparison,
                   QuantizationResult& result, std::map<std::string, double>& cost_seconds,
                   const ExecutionContext& context) const;

  ModelSession& session_;
  const QuantizationOptions options_;
  const std::vector<size_t> quantizers_;
  const std::vector<LayerSpecs> specs_;  // [place in quantizers_][layer]
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_QUANTIZATION_MEASUREMENT_H_
