#ifndef PTQWATCH_REPORT_H_
#define PTQWATCH_REPORT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/step_info.h"
#include "ptqwatch/verdict.h"

namespace ptqwatch {

inline constexpr int kReportSchemaVersion = 1;

/// How a measurement ended. A number is present only with kOk; every other status says in
/// `status_detail` what happened.
enum class ProbeStatus {
  kUnknown = 0,
  kOk = 1,
  kNonFinite = 2,  ///< a loss or a weight is NaN or infinite
  kFailed = 3,     ///< the losses closure threw or returned something unusable
  kOutOfTime = 4,  ///< the wall-clock cap ended it
  kCancelled = 5,  ///< Stop() came in the middle
  kDisabled = 6,   ///< switched off: too many failures in a row, or it cannot work on this model
};

/// "unknown", "ok", "nonfinite", "failed", "out_of_time", "cancelled", "disabled".
std::string_view ToString(ProbeStatus status);
std::optional<ProbeStatus> ParseProbeStatus(std::string_view name);

/// Why a snapshot was taken.
enum class SnapshotTrigger { kUnknown = 0, kInterval = 1, kRequest = 2, kFinish = 3 };

/// "unknown", "interval", "request", "finish".
std::string_view ToString(SnapshotTrigger trigger);
std::optional<SnapshotTrigger> ParseSnapshotTrigger(std::string_view name);

/// How people call a quantizer: "gptq3", "awq4", and "nf4" and "llm_int8", whose names have their
/// bits.
std::string ShortName(std::string_view method, int bits);

/// One layer under one quantizer.
struct LayerQuantization {
  std::string name;  ///< canonical parameter name, e.g. "blocks.0.attn.qkv.weight"
  /// tr(dW H dW^T) / tr(W H W^T): relative squared error of the layer's output on the calibration
  /// data, with the undamped H.
  std::optional<double> output_error_ratio;
  /// The same for round-to-nearest on the same grid.
  std::optional<double> rtn_output_error_ratio;
  /// Damping used, relative to the mean of the live diagonal.
  std::optional<double> damp;
  int64_t tokens = 0;        ///< calibration rows behind H
  int64_t skipped_rows = 0;  ///< calibration rows left out for a NaN or infinity
  /// Inputs that were zero in all calibration rows.
  std::optional<int64_t> dead_columns;
  std::string status;  ///< see LayerStatus in quantizer.h
  /// The layer's shares g_l'd_l and d_l'(Hd)_l / 2 of the two terms of the prediction below, in
  /// nats per token: over all layers they sum up to those.
  std::optional<double> gradient_term_nats;
  std::optional<double> curvature_term_nats;
  friend bool operator==(const LayerQuantization&, const LayerQuantization&) = default;
};

/// The loss part of the way to the quantized weights, and beyond them.
struct LossAlong {
  double scale = 0;                            ///< a
  std::optional<double> delta_nats;            ///< CE(W + a d) - CE(W) on the curvature batch
  std::optional<double> predicted_delta_nats;  ///< a g'd + a^2 d'Hd / 2
  friend bool operator==(const LossAlong&, const LossAlong&) = default;
};

/// The model under one quantizer. Losses are means over probe tokens in nats; `loss_nats`,
/// `delta_nats` and the full-precision loss it is compared with come from the same tokens, so their
/// difference is paired.
struct QuantizationReport {
  std::string method;  ///< see QuantizationMethod in quantizer.h
  int bits = 0;
  int group_size = 0;  ///< -1: one group per output row; "nf4": weights of a block
  bool symmetric = true;
  ProbeStatus status = ProbeStatus::kUnknown;
  std::string status_detail;
  std::optional<double> loss_nats;          ///< CE(W_hat)
  std::optional<double> delta_nats;         ///< CE(W_hat) - CE(W)
  std::optional<double> delta_stderr_nats;  ///< the unit is a sequence
  std::optional<double> error_ratio;        ///< CE(W_hat) / CE(W) - 1
  std::optional<double> error_ratio_stderr;
  std::optional<double> displacement_norm;  ///< ||W_hat - W|| over the covered weights (Frobenius)
  /// g'd + d'Hd / 2 along d = W_hat - W: the second-order prediction of the loss change on the
  /// curvature batch, with gradient g and Hessian H at W. In nats per token.
  std::optional<double> predicted_delta_nats;
  /// CE(W_hat) - CE(W) on that same batch, to hold the prediction against.
  std::optional<double> curvature_batch_delta_nats;
  /// The two terms of the prediction: g'd and d'Hd / 2.
  std::optional<double> gradient_term_nats;
  std::optional<double> curvature_term_nats;
  /// d'Hd / d'd: how sharp the loss is along d. The curvature term is this times ||d||^2 / 2, so
  /// that a rise of it is one of displacement or one of sharpness.
  std::optional<double> curvature_along_error;
  /// (v'd)^2 / d'd with the top eigenvector v: the share of d along it, in [0, 1].
  std::optional<double> top_eigenvector_alignment;
  std::vector<LossAlong> loss_along;  ///< a few a, smallest first
  int64_t probe_tokens = 0;           ///< tokens behind the losses
  double coverage_ratio = 0;          ///< share of all parameters that was quantized
  std::vector<LayerQuantization> layers;
  friend bool operator==(const QuantizationReport&, const QuantizationReport&) = default;
};

/// The Hessian's block of one parameter.
struct LayerCurvature {
  std::string name;             ///< canonical parameter name
  int64_t parameters = 0;       ///< size of the block
  std::optional<double> trace;  ///< Hutchinson estimate
  std::optional<double> trace_stderr;
  std::optional<double> weight_mean_square;  ///< mean of w^2
  friend bool operator==(const LayerCurvature&, const LayerCurvature&) = default;
};

/// One end of a spectrum, or next to it.
struct EigenvalueReport {
  std::optional<double> value;
  std::optional<double> residual_ratio;  ///< ||Hv - lambda v|| / |lambda|
  bool converged = false;                ///< the residual is what was asked for
  int64_t products = 0;                  ///< with H, spent on it
  /// "cold", "warm" (from the eigenvector of the report before) or "restarted" (that one was
  /// stale).
  std::string start;
  friend bool operator==(const EigenvalueReport&, const EigenvalueReport&) = default;
};

/// The Hessian H of the mean loss on the curvature batch, with respect to the parameters in scope,
/// at the snapshot. Nothing is quantized here; units are nats per squared unit of weight.
struct CurvatureReport {
  ProbeStatus status = ProbeStatus::kUnknown;
  std::string status_detail;
  std::string scope;  ///< "quantized_weights", "all_parameters" or "named_parameters"
  /// How products with H are made: "retained_graph", "recomputed_graph" (both exact) or
  /// "finite_difference" (central). "gauss_newton": H is the Gauss-Newton matrix.
  std::string mode;
  int64_t parameters = 0;           ///< dimension of H
  std::optional<double> loss_nats;  ///< on the curvature batch
  int64_t batch_tokens = 0;
  std::optional<double> gradient_norm;
  /// Largest eigenvalue of H.
  std::optional<double> top_eigenvalue;
  /// ||Hv - lambda v|| / |lambda| of the eigenpair above.
  std::optional<double> top_eigenvalue_residual_ratio;
  /// Smallest one: how far the loss is from convex, where it is negative.
  std::optional<double> bottom_eigenvalue;
  std::optional<double> bottom_eigenvalue_residual_ratio;
  /// "lanczos", or "power_iteration" where memory is short.
  std::string eigenvalue_method;
  /// The largest ones, largest first: `top_eigenvalue` and those after it that were asked for, with
  /// what each cost.
  std::vector<EigenvalueReport> top_eigenvalues;
  /// tr(H), by Hutchinson's estimator with the same probe vectors at each snapshot.
  std::optional<double> trace;
  std::optional<double> trace_stderr;
  /// Half the width of its 95 % confidence interval, by Student's t of `trace_probes` - 1 degrees
  /// of freedom.
  std::optional<double> trace_interval;
  int64_t trace_probes = 0;  ///< probe vectors behind it
  /// sum over parameters l of mean(w^2)_l tr(H_l): unlike the trace it does not change when weights
  /// are rescaled, and follows quantization error from run to run.
  std::optional<double> weighted_trace;
  std::optional<double> weighted_trace_stderr;
  /// Finite differences only: ||Hv(step) - Hv(step / 2)|| / ||Hv||, checked once a snapshot.
  std::optional<double> step_check_ratio;
  int64_t hessian_products = 0;
  std::optional<int64_t> graph_bytes;  ///< of the gradient graphs, where they were retained
  /// "sgd", "adam" or "adamw"; empty where the trainer passes no optimizer.
  std::string optimizer;
  /// How near the optimizer is to where its steps begin to grow along the sharpest direction: for
  /// SGD without momentum lambda_max eta / 2, with momentum, decay and Adam's preconditioner as
  /// curvature/edge_of_stability.h has it. 1 is the edge. A lower bound where the scope leaves
  /// trained parameters out.
  std::optional<double> edge_of_stability_ratio;
  /// ||Mv - ratio v|| / |ratio| of the matrix M whose eigenvalue it is.
  std::optional<double> edge_of_stability_residual_ratio;
  std::string edge_of_stability_detail;  ///< why there is no ratio
  std::vector<LayerCurvature> layers;
  friend bool operator==(const CurvatureReport&, const CurvatureReport&) = default;
};

/// A parameter that no quantizer touched, and why.
struct SkippedLayer {
  std::string name;
  std::string reason;
  int64_t parameters = 0;
  friend bool operator==(const SkippedLayer&, const SkippedLayer&) = default;
};

/// The measurements of one snapshot. A plain value: no tensors, no handles.
struct Report {
  int schema_version = kReportSchemaVersion;
  std::string run_id;
  int attempt =
      1;  ///< 1, 2, ...: attempts of this run that have written reports, this one included
  std::string fingerprint;  ///< hash of parameter table, probe tokens, quantizer specs and seed:
                            ///< equal means comparable
  int64_t sequence = 0;     ///< 1, 2, ... over all attempts of a run
  /// Sequence of the report whose ProbeState this one started from; 0 for a cold start.
  int64_t probe_state_sequence = 0;

  int64_t step = 0;
  double snapshot_time_unix_seconds = 0;
  double learning_rate = 0;
  std::optional<int64_t> tokens;
  std::optional<double> training_loss_nats;
  SnapshotTrigger trigger = SnapshotTrigger::kUnknown;
  LrPhase lr_phase = LrPhase::kUnknown;
  /// Corners of the learning rate since the previous report.
  std::vector<LrChangePoint> lr_change_points;
  /// First step with a rate below the plateau, once a decay has begun.
  std::optional<int64_t> decay_onset_step;
  bool rolled_back = false;  ///< the step number went backwards since the previous report

  ProbeStatus probe_status = ProbeStatus::kUnknown;  ///< of the full-precision loss
  std::string probe_status_detail;
  std::optional<double> probe_loss_nats;  ///< CE(W) on `probe_tokens` tokens
  std::optional<double> probe_loss_stderr_nats;
  int64_t probe_tokens = 0;

  /// "one_shot" or "sequential": see CalibrationMode in options.h.
  std::string calibration_mode;
  std::vector<QuantizationReport> quantization;
  std::vector<SkippedLayer> skipped_layers;
  /// Absent where MonitorOptions::curvature is off.
  std::optional<CurvatureReport> curvature;

  /// Seconds spent, by part: "stall" is what OnStep took from the training thread; the others ran
  /// beside it.
  std::map<std::string, double> cost_seconds;

  friend bool operator==(const Report&, const Report&) = default;
};

/// What is published and journalled: the measurements and what they mean.
struct AnalyzedReport {
  Report report;
  Verdict verdict;
  friend bool operator==(const AnalyzedReport&, const AnalyzedReport&) = default;
};

/// One line of JSON (no newline inside or at the end). Keys are the member names, the report's
/// members at top level and the verdict under "verdict"; unmeasured and non-finite values are
/// absent. Doubles are written so that they read back bit for bit.
std::string ToJson(const AnalyzedReport& report);

/// Reads what ToJson wrote, by this or another version: unknown keys are ignored, missing ones keep
/// their default. Fails with InvalidArgument on malformed JSON or a key of the wrong type.
absl::StatusOr<AnalyzedReport> FromJson(std::string_view json);

}  // namespace ptqwatch

#endif  // PTQWATCH_REPORT_H_
