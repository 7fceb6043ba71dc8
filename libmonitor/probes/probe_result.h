#ifndef PTQWATCH_PROBES_PROBE_RESULT_H_
#define PTQWATCH_PROBES_PROBE_RESULT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/reservation.h"
#include "capture/expert_routing.h"
#include "curvature/spectrum.h"
#include "notices/probe_outcome.h"
#include "ptqwatch/report.h"
#include "snapshot/replica.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {

/// The loss without and with each quantizer.
struct QuantizationResult {
  ProbeStatus status = ProbeStatus::kUnknown;  ///< of the full-precision loss
  std::string detail = {};
  std::optional<double> loss_nats = {};
  std::optional<double> loss_stderr_nats = {};
  int64_t tokens = 0;
  int64_t examples = 0;  ///< as Report::probe_examples
  std::optional<double> accuracy_ratio = {};
  std::optional<double> accuracy_stderr = {};
  std::optional<CalibrationMode> calibration_mode = {};
  std::vector<SkippedLayer> skipped_layers = {};
  std::optional<UnseenWeights> unseen = {};
  std::vector<QuantizationReport> quantizers = {};  ///< without the fields of ErrorCurvature
  QuantizedWeights weights = {};
  std::shared_ptr<Reservation> held = {};    ///< memory of the weights
  std::vector<UnitLosses> losses = {};       ///< full-precision, for the probe batches evaluated
  std::vector<ExpertRouting> routings = {};  ///< as LossComparison::routings
  /// By quantizer, for the batches that it was compared on.
  std::vector<std::vector<UnitLosses>> quantized = {};
  std::vector<ProbeSet> sums = {};  ///< of each quantizer compared, on these batches
};

/// The loss along the error d = W_hat - W of one quantizer, on the curvature batch.
struct ErrorCurvature {
  struct Layer {
    std::string name;
    double gradient_term_nats = 0;
    double curvature_term_nats = 0;
  };
  double predicted_delta_nats = 0;
  double delta_nats = 0;  ///< measured
  std::optional<double> delta_stderr_nats = {};
  double gradient_term_nats = 0;
  double curvature_term_nats = 0;
  double curvature_along_error = 0;
  double top_eigenvector_alignment = 0;
  std::vector<LossAlong> loss_along = {};
  std::vector<Layer> layers = {};
};

/// The Hessian of the loss.
struct CurvatureResult {
  CurvatureReport report = {};
  /// In the order of the quantizers; nullopt for a quantizer without weights or with a loss that is
  /// not finite.
  std::vector<std::optional<ErrorCurvature>> errors = {};
};

/// The losses of a snapshot's own weights, with which the losses of averages are compared.
struct OwnLosses {
  std::vector<UnitLosses> full = {};  ///< by batch
  /// By averaged quantizer and batch.
  std::vector<std::vector<UnitLosses>> quantized = {};
};

/// The result for averages of snapshots. The report has the averages of all probes.
struct AveragingResult {
  std::vector<AveragingReport> averages = {};
  OwnLosses own = {};  ///< for the probes after it
};

/// The result for layers raised to more bits.
struct MixedPrecisionResult {
  std::vector<MixedPrecisionReport> mixtures = {};
};

/// The loss under noise in the weights.
struct NoiseResult {
  NoiseReport report = {};
};

/// The loss increase on all sets of probe batches.
struct PooledResult {
  PooledLoss report = {};
};

/// The finding of a probe or a job. To add a kind of measurement with fields in the report, add its
/// type here and a line to AssembleReport.
using ResultValue =
    std::variant<std::monostate, QuantizationResult, CurvatureResult, MixedPrecisionResult,
                 AveragingResult, NoiseResult, PooledResult, PredictedEnd>;

/// The result of a probe for one snapshot.
struct ProbeResult {
  ProbeOutcome outcome = {};
  std::map<std::string, double> cost_seconds = {};
  VectorMap vectors = {};  ///< warm starts for the next snapshot
  ResultValue value = {};
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_PROBE_RESULT_H_
