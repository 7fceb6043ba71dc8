#ifndef PTQWATCH_REPORT_H_
#define PTQWATCH_REPORT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/quantizer.h"
#include "ptqwatch/step_info.h"
#include "ptqwatch/verdict.h"

namespace ptqwatch {

inline constexpr int kReportSchemaVersion = 1;

/// How a measurement ended. Numbers are present only with kOk; for every other status
/// `status_detail` gives the reason.
enum class ProbeStatus {
  kUnknown = 0,
  kOk = 1,
  kNonFinite = 2,  ///< a loss or a weight is NaN or infinite
  kFailed = 3,     ///< the losses closure threw or returned something unusable
  kOutOfTime = 4,  ///< the wall-clock cap ended the measurement
  kCancelled = 5,  ///< Stop() interrupted it
  kDisabled = 6,   ///< switched off: too many failures in a row, or impossible on this model
  kOtherRank = 7,  ///< dealt to another rank of the run (MonitorOptions::ranks)
};

/// "unknown", "ok", "nonfinite", "failed", "out_of_time", "cancelled", "disabled",
/// "other_rank".
PTQWATCH_EXPORT std::string_view ToString(ProbeStatus status);
/// InvalidArgument, listing the known names, for any other name, like all functions of this form.
PTQWATCH_EXPORT absl::StatusOr<ProbeStatus> ParseProbeStatus(std::string_view name);

/// The parameters in which the Hessian is taken.
enum class CurvatureScope {
  kQuantizedWeights = 0,  ///< quantized weights, on which quantization error depends
  /// All trained parameters. Excludes frozen ones: those with requires_grad off in the live model,
  /// if it is on for others.
  kAllParameters = 1,
  /// Parameters that match CurvatureOptions::parameters: a layer, a block, a kind of weight.
  kNamedParameters = 2,
};
/// "quantized_weights", "all_parameters", "named_parameters".
PTQWATCH_EXPORT std::string_view ToString(CurvatureScope scope);
PTQWATCH_EXPORT absl::StatusOr<CurvatureScope> ParseCurvatureScope(std::string_view name);

/// How products of the Hessian H with a vector v are computed.
enum class HessianMode {
  /// The first of the next three modes that works for this model, determined at Create. If memory
  /// runs out later, the next one takes over.
  kAuto = 0,
  /// Exact: the gradient's graph is built once per snapshot and differentiated for every product.
  /// About 2.2 gradients per product, and the memory of the graphs of all batches. Needs operators
  /// with a second derivative; attention is computed by its mathematical form here.
  kRetainedGraph = 1,
  /// Exact: the same graph, built again for every product. 3 to 4.5 gradients per product, and the
  /// memory of one batch's graph.
  kRecomputedGraph = 3,
  /// (g(W + e v) - g(W - e v)) / 2e, with e such that the gradient changes by about 1 %. Two to
  /// four gradients per product, and no more memory than a gradient. Relative error about 2e-4 in
  /// float32. Unlike the exact modes, it sees the kinks of ReLU.
  kFiniteDifference = 2,
  /// The Gauss-Newton part J'(d2 loss / d logits^2) J of the Hessian (Schraudolph 2002), which is
  /// positive semidefinite for a loss that is convex in the logits. Needs LossValues::logits and
  /// operators with a second derivative. About 4 gradients per product. Never chosen by kAuto.
  kGaussNewton = 4,
};
/// "auto", "retained_graph", "recomputed_graph", "finite_difference", "gauss_newton".
PTQWATCH_EXPORT std::string_view ToString(HessianMode mode);
PTQWATCH_EXPORT absl::StatusOr<HessianMode> ParseHessianMode(std::string_view name);

/// How an eigenvalue was found.
enum class EigenvalueMethod {
  kLanczos = 0,
  kPowerIteration = 1,  ///< in reports of earlier builds
};
/// "lanczos", "power_iteration".
PTQWATCH_EXPORT std::string_view ToString(EigenvalueMethod method);
PTQWATCH_EXPORT absl::StatusOr<EigenvalueMethod> ParseEigenvalueMethod(std::string_view name);

/// Start vector of an eigenvector search.
enum class EigenvalueStart {
  kCold = 0,       ///< a random vector
  kWarm = 1,       ///< the eigenvector of the previous snapshot
  kRestarted = 2,  ///< the same, but it was stale: the random part of the start found this one
};
/// "cold", "warm", "restarted".
PTQWATCH_EXPORT std::string_view ToString(EigenvalueStart start);
PTQWATCH_EXPORT absl::StatusOr<EigenvalueStart> ParseEigenvalueStart(std::string_view name);

/// Update rules, written with the gradient g, the learning rate eta and the weight decay wd.
enum class OptimizerKind {
  /// d = g + wd w. With momentum mu: v = mu v + (1 - dampening) d, and then d = v, or d + mu v with
  /// Nesterov momentum. w -= eta d.
  kSgd = 0,
  /// Weight decay is part of the gradient: g + wd w goes into both moments (arXiv 1412.6980).
  kAdam = 1,
  /// Weight decay is separate: w = (1 - eta wd) w - eta / (1 - beta1^t) m / (sqrt(v / (1 -
  /// beta2^t)) + epsilon) (arXiv 1711.05101).
  kAdamW = 2,
  /// Orthogonalized momentum for matrices (arXiv 2502.16982), with or without another rule for
  /// other parameters. Only the name is known, not the rule's settings: reports have no edge of
  /// stability.
  kMuon = 3,
};
/// "sgd", "adam", "adamw", "muon".
PTQWATCH_EXPORT std::string_view ToString(OptimizerKind kind);
PTQWATCH_EXPORT absl::StatusOr<OptimizerKind> ParseOptimizerKind(std::string_view name);

/// The name of the value, or "" without one.
template <typename Enum>
std::string_view ToString(const std::optional<Enum>& value) {
  return value ? ToString(*value) : std::string_view();
}

/// Identifies a quantizer of a run in series, labels and tables.
struct QuantizerKey {
  std::optional<QuantizationMethod> method;
  int bits = 0;
  std::string format;  ///< as FormatOf(QuantizerSpec)
  friend auto operator<=>(const QuantizerKey&, const QuantizerKey&) = default;
};
/// The key of any record with method, bits and format. An absent format means the method's.
template <typename Record>
QuantizerKey KeyOf(const Record& record) {
  const std::optional<QuantizationMethod> method = record.method;
  return {method, record.bits,
          record.format.value_or(std::string(method ? FormatOf(*method) : ""))};
}
QuantizerKey PTQWATCH_EXPORT KeyOf(const QuantizerSpec& spec);
/// Whether two records are of one quantizer.
template <typename Record, typename Other>
bool SameQuantizer(const Record& record, const Other& other) {
  return KeyOf(record) == KeyOf(other);
}

/// The name of a quantizer in tables, series and costs: "gptq3", "awq4"; "nf4" and "llm_int8"
/// already name their bits. A format other than the method's is added, and replaces the bits unless
/// its codes are integers: "gptq-nvfp4", "rtn4-int-h64". ParseQuantizer reads it.
PTQWATCH_EXPORT std::string ShortName(const QuantizerKey& key);
/// The name of a quantizer in sentences: "3-bit GPTQ", "NF4", "4-bit GPTQ (nvfp4)". Without a
/// method: "3 bits".
PTQWATCH_EXPORT std::string LabelOf(const QuantizerKey& key);

/// One layer under one quantizer.
///
/// A stack of eight or more equal layers, such as the experts of a mixture, has one row, and the
/// three layers in it with the largest errors have rows of their own behind it. In the row of a
/// stack, counts and shares are sums, `status` is the worst, and `damp` the largest; errors of
/// outputs are relative to the sum of all outputs, and other ratios are means.
struct LayerQuantization {
  /// Canonical parameter name, e.g. "blocks.0.attn.qkv.weight"; of a stack
  /// "blocks.0.experts.*.up.weight", or the name of the parameter that has all its layers.
  std::string name;
  /// Relative squared error of the layer's output on the calibration data: tr(dW H dW^T) / tr(W H
  /// W^T) with the undamped H.
  std::optional<double> output_error_ratio;
  std::optional<double> rtn_output_error_ratio;  ///< the same for round-to-nearest on that grid
  std::optional<double> damp;                    ///< relative to the mean of the live diagonal
  int64_t tokens = 0;                            ///< number of calibration rows in H
  int64_t skipped_rows = 0;             ///< calibration rows left out because of NaN or infinity
  std::optional<int64_t> dead_columns;  ///< inputs that were zero in all calibration rows
  std::optional<LayerStatus> status;
  /// The layer's shares g_l'd_l and d_l'(Hd)_l / 2 of the two terms of the prediction below, in
  /// nats per token. Their sums over all layers are those terms, if the layers that a stack
  /// includes are not counted twice.
  std::optional<double> gradient_term_nats;
  std::optional<double> curvature_term_nats;
  /// MX formats only: RoundingErrorParts of round-to-nearest on the layer's grid.
  std::optional<double> dead_zone_ratio;
  std::optional<double> grid_noise_ratio;
  std::optional<double> scale_bias_ratio;
  /// Trajectories only: ||h_hat - h||^2 / ||h||^2 of the hidden states h behind the layer's block,
  /// with the layers of all blocks so far quantized: the error accumulated through the model (arXiv
  /// 2509.23500).
  std::optional<double> accumulated_error_ratio;
  std::optional<int64_t> stacked;     ///< stacks only: number of layers
  std::optional<int64_t> stacked_ok;  ///< stacks only: those with the status kOk
  /// Stacks only: quantiles of `output_error_ratio` over the layers.
  std::optional<double> output_error_p10_ratio;
  std::optional<double> output_error_median_ratio;
  std::optional<double> output_error_p90_ratio;
  /// With MonitorOptions::artifact_size: entropy of the layer's codes in bits a weight
  /// (StoredSize); of a stack, the mean over the codes of its layers.
  std::optional<double> entropy_bits = {};
  friend bool operator==(const LayerQuantization&, const LayerQuantization&) = default;
};

/// Loss at W + a d for one a, with the quantization error d = W_hat - W, on the curvature batch. In
/// a trajectory without curvature, on the probe tokens, and with the parabola through the losses at
/// a = 0, 1/2 and 1 as the prediction.
struct LossAlong {
  double scale = 0;                                 ///< a
  std::optional<double> delta_nats = {};            ///< CE(W + a d) - CE(W)
  std::optional<double> predicted_delta_nats = {};  ///< a g'd + a^2 d'Hd / 2
  std::optional<double> delta_stderr_nats = {};     ///< standard error over sequences
  friend bool operator==(const LossAlong&, const LossAlong&) = default;
};

/// A metric of a task over its examples, as lm-eval computes it.
struct TaskReport {
  std::string task;
  /// "acc": share of examples whose right choice has the highest log-likelihood, or, if there is
  /// one choice, is what greedy decoding gives. "acc_norm": the same with log-likelihoods over the
  /// characters of the choice. "perplexity": exp(-mean log-likelihood) of single choices.
  std::string metric;
  int64_t examples = 0;
  std::optional<double> value;
  std::optional<double> value_stderr;  ///< absent with fewer than two examples
  /// A quantizer's accuracy lost: (Acc(W) - Acc(W_hat)) / (1 - Acc(W)), and its standard error from
  /// the paired examples. Absent if W gets every example right.
  std::optional<double> degradation_ratio;
  std::optional<double> degradation_stderr;
  friend bool operator==(const TaskReport&, const TaskReport&) = default;
};

/// The model under one quantizer. Losses are means over probe tokens, in nats. The quantized loss
/// and the full-precision loss come from the same tokens, so their difference is paired.
struct QuantizationReport {
  std::optional<QuantizationMethod> method;
  int bits = 0;
  int group_size = 0;  ///< -1: one group per output row; NF4: block size in weights
  bool symmetric = true;
  ProbeStatus status = ProbeStatus::kUnknown;
  std::string status_detail;
  std::optional<double> loss_nats;          ///< CE(W_hat)
  std::optional<double> delta_nats;         ///< CE(W_hat) - CE(W)
  std::optional<double> delta_stderr_nats;  ///< standard error over sequences
  std::optional<double> error_ratio;        ///< CE(W_hat) / CE(W) - 1
  std::optional<double> error_ratio_stderr;
  std::optional<double> displacement_norm;  ///< ||W_hat - W|| over the covered weights (Frobenius)
  /// g'd + d'Hd / 2 along d = W_hat - W, in nats per token: the second-order prediction of the loss
  /// change on the curvature batch, with gradient g and Hessian H at W.
  std::optional<double> predicted_delta_nats;
  /// CE(W_hat) - CE(W) on the same batch, with its standard error over sequences.
  std::optional<double> curvature_batch_delta_nats;
  std::optional<double> curvature_batch_delta_stderr_nats;
  std::string prediction_detail;  ///< why the prediction is unreliable (docs/curvature.md)
  /// The two terms of the prediction: g'd and d'Hd / 2.
  std::optional<double> gradient_term_nats;
  std::optional<double> curvature_term_nats;
  /// d'Hd / d'd: how sharp the loss is along d. The curvature term is this times ||d||^2 / 2, which
  /// distinguishes growing displacement from growing sharpness.
  std::optional<double> curvature_along_error;
  /// (v'd)^2 / d'd with the top eigenvector v: the share of d along v, in [0, 1].
  std::optional<double> top_eigenvector_alignment;
  std::vector<LossAlong> loss_along;  ///< by ascending scale
  /// The smallest scale of `loss_along` from which on the prediction misses the measured change by
  /// more than a quarter of it and by more than two standard errors: the loss along the error is
  /// beyond the quadratic (arXiv 2606.09012). Absent if the prediction holds up to the last scale.
  std::optional<double> beyond_quadratic_scale;
  /// Trajectories without curvature only: 2 / eta_c along the error (CriticalSharpness), from the
  /// parabola of `loss_along`.
  std::optional<double> critical_sharpness;
  /// Accuracy of the quantized model on the same examples, as Report::probe_accuracy_ratio.
  std::optional<double> accuracy_ratio;
  /// (Acc(W) - Acc(W_hat)) / (1 - Acc(W)), and its standard error from the paired examples.
  std::optional<double> accuracy_degradation_ratio;
  std::optional<double> accuracy_degradation_stderr;
  int64_t probe_tokens = 0;   ///< number of tokens in the losses
  double coverage_ratio = 0;  ///< quantized share of all parameters
  std::vector<LayerQuantization> layers;
  std::optional<std::string> format = {};  ///< FormatOf(QuantizerSpec); absent: FormatOf(method)
  std::optional<std::string> scale_rule = {};  ///< of MX formats: ToString(ScaleRule)
  std::vector<TaskReport> tasks = {};          ///< as Report::tasks
  /// Averages only: the loss minus the loss of the snapshot's own weights with the same quantizer
  /// on the same tokens, and its standard error over sequences. Below 0: the average gains.
  std::optional<double> change_nats = {};
  std::optional<double> change_stderr_nats = {};
  /// Mixtures of experts only: the share of the choices of routers (one a token and router) on the
  /// probe batches that take another set of experts with the quantized weights. Absent unless
  /// routers choose by a top-k (docs/modules.md).
  std::optional<double> routing_change_ratio = {};
  /// Mixtures of experts only: of the rows that experts compute on the probe batches (one a token
  /// and chosen expert), the share of experts that this quantizer rounds to nearest for lack of
  /// calibration rows, or that met none and stay as they are.
  std::optional<double> fallback_tokens_ratio = {};
  /// With MonitorOptions::artifact_size: entropy of the codes in bits a weight, the mean over all
  /// codes, each under the distribution of its own layer.
  std::optional<double> entropy_bits = {};
  /// Likewise: bytes of the model's parameters if an entropy coder packs the codes of each layer,
  /// scales and what else decoding needs are stored beside them (StoredSize), and every parameter
  /// without codes takes 16 bits an element. Parameters that share memory count once; buffers, file
  /// headers and program text do not count.
  std::optional<int64_t> artifact_bytes = {};
  friend bool operator==(const QuantizationReport&, const QuantizationReport&) = default;
};

/// The diagonal block of the Hessian for one parameter.
struct LayerCurvature {
  std::string name;             ///< canonical parameter name
  int64_t parameters = 0;       ///< size of the block
  std::optional<double> trace;  ///< Hutchinson estimate
  std::optional<double> trace_stderr;
  std::optional<double> weight_mean_square;  ///< mean of w^2
  std::optional<int64_t> stacked;            ///< number of blocks in it; see LayerQuantization
  friend bool operator==(const LayerCurvature&, const LayerCurvature&) = default;
};

/// One of the outermost eigenvalues of H, and its cost.
struct EigenvalueReport {
  std::optional<double> value;
  std::optional<double> residual_ratio;  ///< ||Hv - lambda v|| / |lambda|
  bool converged = false;                ///< the residual reached the requested size
  int64_t products = 0;                  ///< products with H
  std::optional<EigenvalueStart> start;
  friend bool operator==(const EigenvalueReport&, const EigenvalueReport&) = default;
};

/// The Hessian H of the mean loss on the curvature batch, with respect to the parameters in scope,
/// at the snapshot's full-precision weights. Units are nats per squared unit of weight. With ranks,
/// each that measures a part of it searches for the eigenvalues, because every part needs them.
struct CurvatureReport {
  ProbeStatus status = ProbeStatus::kUnknown;
  std::string status_detail;
  std::optional<CurvatureScope> scope;
  /// How products with H are made. With kGaussNewton, H is the Gauss-Newton matrix.
  std::optional<HessianMode> mode;
  /// Why products are finite differences, if the model can be measured exactly in principle: names
  /// the operator without a second derivative, or the memory that graphs would take.
  std::string mode_detail;
  int64_t parameters = 0;           ///< dimension of H
  std::optional<double> loss_nats;  ///< on the curvature batch
  int64_t batch_tokens = 0;
  std::optional<double> gradient_norm;
  std::optional<double> top_eigenvalue;  ///< the largest of H
  /// With 97.5 % probability the largest eigenvalue is at most this, and always at least
  /// `top_eigenvalue`, which may be a neighbour of it.
  std::optional<double> top_eigenvalue_upper;
  /// ||Hv - lambda v|| / |lambda| of the eigenpair that was found.
  std::optional<double> top_eigenvalue_residual_ratio;
  /// Smallest eigenvalue. If negative, it says how far the loss is from convex.
  std::optional<double> bottom_eigenvalue;
  std::optional<double> bottom_eigenvalue_residual_ratio;
  std::optional<EigenvalueMethod> eigenvalue_method;
  /// `top_eigenvalue` and the other requested eigenvalues, largest first.
  std::vector<EigenvalueReport> top_eigenvalues;
  /// tr(H), by Hutchinson's estimator with the same probe vectors at every snapshot.
  std::optional<double> trace;
  std::optional<double> trace_stderr;
  /// Half the width of the trace's 95 % confidence interval, by Student's t with `trace_probes` - 1
  /// degrees of freedom.
  std::optional<double> trace_interval;
  int64_t trace_probes = 0;  ///< number of probe vectors in the trace
  /// Standard error of the trace over other curvature batches of the same size, from the difference
  /// between batches. Absent if the probe vectors explain all of that difference, and with only one
  /// batch.
  std::optional<double> trace_batch_stderr;
  /// Sum over parameters l of mean(w^2)_l tr(H_l). Unlike the trace it does not change when weights
  /// are rescaled, and it follows quantization error across runs.
  std::optional<double> weighted_trace;
  std::optional<double> weighted_trace_stderr;
  /// Ranks only: how the measurement of the trace ended if not as `status`, and why.
  std::optional<ProbeStatus> trace_status;
  std::string trace_detail;
  /// Finite differences only: ||Hv(step) - Hv(step / 2)|| / ||Hv||, checked once a snapshot.
  std::optional<double> step_check_ratio;
  /// Number of products with H. With ranks, the search for eigenvalues counts only on the rank that
  /// measures the edge of stability.
  int64_t hessian_products = 0;
  std::optional<int64_t> graph_bytes;      ///< memory of the gradient graphs, if they were retained
  std::optional<OptimizerKind> optimizer;  ///< absent if the trainer passes none
  /// How near the optimizer is to the point where its steps grow along the sharpest direction; 1 is
  /// the edge. lambda_max eta / 2 for SGD without momentum; docs/curvature.md has the formula for
  /// momentum, decay and Adam's preconditioner. A lower bound if the scope omits trained
  /// parameters.
  std::optional<double> edge_of_stability_ratio;
  /// ||Mv - ratio v|| / |ratio|, where the ratio is an eigenvalue of the matrix M.
  std::optional<double> edge_of_stability_residual_ratio;
  std::string edge_of_stability_detail;  ///< why the ratio is missing
  /// Ranks only: as `trace_status`.
  std::optional<ProbeStatus> edge_of_stability_status;
  std::vector<LayerCurvature> layers;
  friend bool operator==(const CurvatureReport&, const CurvatureReport&) = default;
};

/// A parameter that is not quantized, and the reason.
struct SkippedLayer {
  std::string name;
  std::string reason;
  int64_t parameters = 0;
  friend bool operator==(const SkippedLayer&, const SkippedLayer&) = default;
};

/// Matrix weights that would be quantized, but that ptqwatch cannot measure.
struct UnseenWeights {
  double ratio = 0;  ///< of all matrix weights but embeddings, head, routers, and what is excluded
  std::string largest;  ///< name of the largest one
  std::string reason;   ///< why it is not measured
  friend bool operator==(const UnseenWeights&, const UnseenWeights&) = default;
};

/// How a learning rate falls from r to `final_ratio` r. After the share t of the decay's steps it
/// is (final_ratio + (1 - final_ratio) s(t)) r.
enum class DecayShape {
  kLinear = 0,        ///< s = 1 - t
  kOneMinusSqrt = 1,  ///< s = 1 - sqrt(t) (arXiv 2405.18392)
  kCosine = 2,        ///< s = (1 + cos(pi t)) / 2
};
/// "linear", "one_minus_sqrt", "cosine".
PTQWATCH_EXPORT std::string_view ToString(DecayShape shape);
PTQWATCH_EXPORT absl::StatusOr<DecayShape> ParseDecayShape(std::string_view name);

/// How weights are averaged.
enum class AveragingKind {
  kWindow = 0,       ///< the mean of the last snapshots (LAWA, arXiv 2209.14981)
  kExponential = 1,  ///< m = decay m + (1 - decay) w at every snapshot
  /// The weighted average of the last snapshots that emulates a decay of the learning rate over
  /// them: with the shape s and i = 0 ... n - 1, oldest first, the weights s(i / n) - s((i + 1) /
  /// n) (WSM, arXiv 2507.17634).
  kMerge = 2,
};
/// "window", "exponential", "merge".
PTQWATCH_EXPORT std::string_view ToString(AveragingKind kind);
PTQWATCH_EXPORT absl::StatusOr<AveragingKind> ParseAveragingKind(std::string_view name);

/// The result of averaging snapshots. Losses are on the probe tokens of the report.
struct AveragingReport {
  std::optional<AveragingKind> kind;
  int64_t window = 0;           ///< kWindow, kMerge: requested number of snapshots
  std::optional<double> decay;  ///< kExponential
  int64_t snapshots = 0;        ///< in this average: fewer than `window` until it is full
  int64_t first_step = 0;       ///< of the oldest snapshot in it
  ProbeStatus status = ProbeStatus::kUnknown;
  std::string status_detail;
  std::optional<double> loss_nats;  ///< CE of the averaged weights
  std::optional<double> loss_stderr_nats;
  int64_t probe_tokens = 0;
  /// The averaged weights with the watched quantizer, and with the cheapest of the other width if
  /// the run has quantizers of 3 and of 4 bits.
  std::vector<QuantizationReport> quantization;
  std::optional<DecayShape> shape = {};  ///< kMerge: of the decay
  /// CE of the averaged weights minus CE(W) on the same tokens, and its standard error.
  std::optional<double> change_nats = {};
  std::optional<double> change_stderr_nats = {};
  friend bool operator==(const AveragingReport&, const AveragingReport&) = default;
};

/// The model at `bits`, and at `raised_bits` in the layers with the highest cost for their size.
struct MixedPrecisionReport {
  std::optional<QuantizationMethod> method;
  int bits = 0;
  int raised_bits = 0;
  std::vector<std::string> raised_layers;  ///< canonical parameter names, worst first
  double mean_bits = 0;                    ///< over the quantized weights, without scales
  ProbeStatus status = ProbeStatus::kUnknown;
  std::string status_detail;
  /// Predicted loss increase over full precision, from the layers' g'd + d'Hd / 2.
  std::optional<double> predicted_delta_nats;
  std::optional<double> delta_nats;  ///< measured on the probe tokens
  std::optional<double> delta_stderr_nats;
  std::optional<std::string> format = {};  ///< absent: implied by the method
  friend bool operator==(const MixedPrecisionReport&, const MixedPrecisionReport&) = default;
};

/// The loss under Gaussian noise in the quantized weights (arXiv 2605.02105): every element of a
/// weight W gets an independent draw of N(0, s^2 mean(W^2)), in all layers together. To second
/// order the expected increase is s^2 / 2 times CurvatureReport::weighted_trace, but measuring it
/// takes forward passes alone. The draws depend on the run's seed and the layers' names, so all
/// snapshots get the same ones.
struct NoiseReport {
  ProbeStatus status = ProbeStatus::kUnknown;
  std::string status_detail = {};
  double relative_norm = 0;  ///< s: expected norm of a weight's noise, over the weight's
  int64_t draws = 0;         ///< different draws; each covers a part of the probe batches
  std::optional<double> delta_nats = {};  ///< CE(W + noise) - CE(W), on the same tokens
  /// Standard error of `delta_nats` over tokens and draws.
  std::optional<double> delta_stderr_nats = {};
  int64_t probe_tokens = 0;
  /// As QuantizationReport::routing_change_ratio, with the noise.
  std::optional<double> routing_change_ratio = {};
  friend bool operator==(const NoiseReport&, const NoiseReport&) = default;
};

/// The loss of the watched quantizer on one set of probe batches, as sums over its units
/// (sequences): of each unit's loss increase x in nats, full-precision loss z, weight y (tokens,
/// unless the losses have other weights), their squares and their products.
struct ProbeSet {
  int64_t set = 0;  ///< 0: the probe batches of all other measurements
  ProbeStatus status = ProbeStatus::kUnknown;
  std::string status_detail = {};
  int64_t units = 0;
  int64_t tokens = 0;
  double change = 0;            ///< x
  double loss = 0;              ///< z
  double weight = 0;            ///< y
  double change_squared = 0;    ///< x^2
  double loss_squared = 0;      ///< z^2
  double weight_squared = 0;    ///< y^2
  double change_by_loss = 0;    ///< x z
  double change_by_weight = 0;  ///< x y
  friend bool operator==(const ProbeSet&, const ProbeSet&) = default;
};

/// The loss increase of the watched quantizer (Verdict::method) on all sets of probe batches
/// together (MonitorOptions::further_probe_sets). Its numbers are absent unless all sets were
/// measured: numbers from fewer sets would not be comparable.
struct PooledLoss {
  std::optional<QuantizationMethod> method = {};
  int bits = 0;
  std::optional<std::string> format = {};        ///< absent: implied by the method
  ProbeStatus status = ProbeStatus::kUnknown;    ///< of the first set that was not measured
  std::string status_detail = {};                ///< names all of these sets
  std::optional<double> delta_nats = {};         ///< CE(W_hat) - CE(W)
  std::optional<double> delta_stderr_nats = {};  ///< standard error over units
  std::optional<double> error_ratio = {};        ///< CE(W_hat) / CE(W) - 1
  std::optional<double> error_ratio_stderr = {};
  int64_t probe_tokens = 0;
  std::vector<ProbeSet> sets = {};  ///< in order
  friend bool operator==(const PooledLoss&, const PooledLoss&) = default;
};

/// The cost of one quantizer at the end of a simulated decay.
struct SimulatedError {
  std::optional<QuantizationMethod> method;
  int bits = 0;
  std::optional<double> error_ratio;  ///< CE(W_hat) / CE(W) - 1
  std::optional<double> error_ratio_stderr;
  std::optional<std::string> format = {};  ///< absent: implied by the method
  friend bool operator==(const SimulatedError&, const SimulatedError&) = default;
};

/// The end of one simulated decay of the learning rate.
struct SimulatedDecay {
  int64_t steps = 0;         ///< of this decay
  int64_t settle_steps = 0;  ///< before it at the full rate, for a new optimizer to settle
  ProbeStatus status = ProbeStatus::kUnknown;
  std::string status_detail;
  std::optional<double> loss_nats;  ///< CE(W) on the probe tokens
  std::optional<double> trace;      ///< of the Hessian, if curvature is measured
  std::optional<double> top_eigenvalue;
  std::vector<SimulatedError> quantization;
  double seconds = 0;  ///< of work, training and measuring
  friend bool operator==(const SimulatedDecay&, const SimulatedDecay&) = default;
};

/// Predicted cost of one quantizer at the end of the planned decay, with a 95 % interval.
struct PredictedError {
  std::optional<QuantizationMethod> method;
  int bits = 0;
  std::optional<double> error_ratio;
  std::optional<double> error_low_ratio;
  std::optional<double> error_high_ratio;
  std::optional<std::string> format = {};  ///< absent: implied by the method
  friend bool operator==(const PredictedError&, const PredictedError&) = default;
};

/// The result of a shadow cooldown: the predicted end of the planned learning-rate decay, from
/// decays simulated on a copy of the model. docs/cooldown.md describes the method and its errors.
struct PredictedEnd {
  ProbeStatus status = ProbeStatus::kUnknown;
  std::string status_detail;
  int64_t step = 0;          ///< of the snapshot that was trained
  double learning_rate = 0;  ///< at the start of the decay
  std::optional<DecayShape> shape;
  int64_t decay_steps = 0;          ///< of the planned decay
  int64_t simulated_steps = 0;      ///< optimizer steps of all simulations
  double seconds = 0;               ///< of work
  std::optional<double> loss_nats;  ///< CE(W) at the end, with a 95 % interval
  std::optional<double> loss_low_nats;
  std::optional<double> loss_high_nats;
  std::optional<double> trace;
  std::optional<double> trace_low;
  std::optional<double> trace_high;
  std::vector<PredictedError> quantization;
  std::vector<SimulatedDecay> decays;  ///< shortest first
  friend bool operator==(const PredictedEnd&, const PredictedEnd&) = default;
};

/// The bits of one parameter.
struct ParameterDigest {
  std::string name;    ///< canonical parameter name
  std::string digest;  ///< equal exactly if the bits are, for all practical purposes
  friend bool operator==(const ParameterDigest&, const ParameterDigest&) = default;
};

/// How much of the subject's data a run's snapshots are measured with. The monitor chooses it to
/// fit the run (MonitorOptions::adapt_plan) and changes it as rarely as possible.
struct Plan {
  int64_t probe_batches = 0;        ///< at most; the first ones of the subject
  int64_t calibration_batches = 0;  ///< likewise
  /// Sequences in the curvature batch; 0: curvature is not measured.
  int64_t curvature_sequences = 0;
  /// Curvature is measured at every n-th snapshot; 0: never.
  int64_t curvature_every = 0;
  int64_t merges = 0;  ///< at most; weighted averages of snapshots (AveragingOptions::merges)
  /// Further sets of probe batches (PooledLoss): all or none of a rank's; with ranks, the sum.
  int64_t further_probe_sets = 0;
  friend bool operator==(const Plan&, const Plan&) = default;
};

/// The measurements of one snapshot. A plain value: no tensors, no handles.
struct Report {
  int schema_version = kReportSchemaVersion;
  std::string run_id;
  int attempt = 1;  ///< 1, 2, ... counts attempts that have written reports
  /// Hash of parameters, probe tokens, quantizers and seed. Reports with equal ones are comparable.
  std::string fingerprint;
  int64_t sequence = 0;               ///< 1, 2, ... over all attempts of a run
  std::optional<std::string> branch;  ///< branch of a run that forks; absent: it has only one
  std::optional<int64_t> rank;        ///< one of several trainers of a run; absent: it has only one
  std::optional<int64_t> ranks;       ///< number of trainers of this attempt; absent: one
  std::optional<std::string> source;  ///< "trajectory": from a checkpoint; absent: a live run
  /// MonitorOptions::snapshot_dtype; absent: the weights were not rounded.
  std::optional<std::string> snapshot_dtype;
  /// Sequence of the report whose probe state this one started from; 0: a cold start.
  int64_t probe_state_sequence = 0;

  int64_t step = 0;
  double snapshot_time_unix_seconds = 0;
  std::optional<double> learning_rate;  ///< absent if unknown, such as from a checkpoint
  std::optional<int64_t> tokens;
  std::optional<double> training_loss_nats;
  SnapshotTrigger trigger = SnapshotTrigger::kUnknown;
  LrPhase lr_phase = LrPhase::kUnknown;
  std::vector<LrChangePoint> lr_change_points;  ///< corners of the rate since the previous report
  std::optional<int64_t> decay_onset_step;      ///< first step with a rate below the plateau
  bool rolled_back = false;     ///< the step number went backwards since the previous report
  std::string snapshot_digest;  ///< of all parameters' bits; empty if they could not be loaded
  std::vector<ParameterDigest> parameter_digests;  ///< with ranks only; in the model's order

  ProbeStatus probe_status = ProbeStatus::kUnknown;  ///< of the full-precision loss
  std::string probe_status_detail;
  std::optional<double> probe_loss_nats;  ///< CE(W) on `probe_tokens` tokens
  std::optional<double> probe_loss_stderr_nats;
  int64_t probe_tokens = 0;
  int64_t probe_examples = 0;  ///< if the closure returns one loss per example; else 0
  /// MonitorOptions::bytes_per_token: a loss of x nats is x / ln 2 / bytes_per_token bits a byte.
  /// Absent: unknown.
  std::optional<double> bytes_per_token;
  /// Share of probe examples that W classifies correctly; absent without LossValues::correct. With
  /// `tasks`, the mean of the tasks' "acc", each of the same weight.
  std::optional<double> probe_accuracy_ratio;
  std::optional<double> probe_accuracy_stderr;

  std::optional<CalibrationMode> calibration_mode;
  std::vector<QuantizationReport> quantization;
  std::vector<SkippedLayer> skipped_layers;
  std::optional<UnseenWeights> unseen;  ///< absent: all are measured
  /// Absent if curvature is off (MonitorOptions::curvature) or was not due.
  std::optional<CurvatureReport> curvature;
  std::vector<AveragingReport> averaging;
  std::vector<MixedPrecisionReport> mixed_precision;
  std::optional<NoiseReport> noise;  ///< absent if switched off (MonitorOptions)
  std::optional<PooledLoss> pooled;  ///< absent without MonitorOptions::further_probe_sets
  /// The newest completed shadow cooldown, of this snapshot or an earlier one.
  std::optional<PredictedEnd> predicted_end;
  /// Plan of this snapshot; `curvature_sequences` is 0 if curvature was not due.
  std::optional<Plan> plan;
  std::vector<TaskReport> tasks;  ///< of a checkpoint measured with tasks

  /// Seconds by part: "stall" is the time inside OnStep; other parts run beside training.
  std::map<std::string, double> cost;

  friend bool operator==(const Report&, const Report&) = default;
};

/// A report with its verdict, as published and journalled.
struct AnalyzedReport {
  Report report;
  Verdict verdict;
  friend bool operator==(const AnalyzedReport&, const AnalyzedReport&) = default;
};

/// One line of JSON, without a newline: the report's members by their names, and "verdict".
/// Unmeasured and non-finite numbers are absent, an enum without a value is an empty string, and
/// doubles read back bit for bit.
PTQWATCH_EXPORT std::string ToJson(const AnalyzedReport& report);

/// Reads a line written by ToJson of this or another version: unknown keys are ignored, missing
/// keys keep their default, and an unknown enum name reads as no value. InvalidArgument for
/// malformed JSON, a value of the wrong type, and an event (event.h).
PTQWATCH_EXPORT absl::StatusOr<AnalyzedReport> FromJson(std::string_view json);

}  // namespace ptqwatch

#endif  // PTQWATCH_REPORT_H_
