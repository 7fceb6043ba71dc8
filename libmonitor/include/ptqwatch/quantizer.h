#ifndef PTQWATCH_QUANTIZER_H_
#define PTQWATCH_QUANTIZER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/execution_context.h"

/// The quantization engine. Depends on neither a monitor nor LibTorch. docs/quantizers.md explains
/// the methods.
///
/// Each enum has names used in reports and options: ToString returns the name, and Parse converts
/// it back. For an unknown name, Parse returns InvalidArgument and lists the known names.

namespace ptqwatch {

enum class QuantizationMethod {
  kRtn,      ///< round to nearest
  kGptq,     ///< Frantar et al. 2022, arXiv 2210.17323, in its LDLQ form (arXiv 2307.13304)
  kAwq,      ///< activation-aware channel scales, Lin et al. 2023, arXiv 2306.00978
  kLlmInt8,  ///< row-wise absmax int8, outlier columns kept; Dettmers et al. 2022, arXiv 2208.07339
  kNf4,      ///< 4-bit NormalFloat in flat blocks of 64; Dettmers et al. 2023, arXiv 2305.14314
};
/// "rtn", "gptq", "awq", "llm_int8", "nf4".
PTQWATCH_EXPORT std::string_view ToString(QuantizationMethod method);
/// Ignores case and the characters '.', '_' and '-': "LLM.int8" is "llm_int8".
PTQWATCH_EXPORT absl::StatusOr<QuantizationMethod> ParseQuantizationMethod(std::string_view name);
/// Returns the default format of a method's codes, for reports that name none: "int", or "nf4" for
/// NF4.
PTQWATCH_EXPORT std::string_view FormatOf(QuantizationMethod method);

/// The number format of codes and scales. Rows of quantize/kernels/number_format.cc.
enum class QuantizationFormat {
  kInt,      ///< integers with a scale, and a zero if asymmetric
  kFp8,      ///< E4M3, largest number 448
  kFp8E5m2,  ///< E5M2, largest number 57344
  kMxfp4,    ///< E2M1, a power-of-two scale for 32 inputs (OCP Microscaling Formats 1.0)
  kMxfp8,    ///< E4M3, a power-of-two scale for 32 inputs
  kNvfp4,    ///< E2M1, an E4M3 scale for 16 inputs, and a float scale for the tensor
};
/// "int", "fp8_e4m3", "fp8_e5m2", "mxfp4", "mxfp8", "nvfp4".
PTQWATCH_EXPORT std::string_view ToString(QuantizationFormat format);
/// Also accepts "fp8" for "fp8_e4m3".
PTQWATCH_EXPORT absl::StatusOr<QuantizationFormat> ParseQuantizationFormat(std::string_view name);
/// Returns the only bit width of a format: 4 or 8; nullopt for integers.
PTQWATCH_EXPORT std::optional<int> FixedBits(QuantizationFormat format);

/// The power of two that scales an MX block with max|w| = m. emax is the exponent of the format's
/// largest number: 2 for E2M1, 8 for E4M3.
enum class ScaleRule {
  kFloor,    ///< floor(log2 m) - emax; numbers beyond the largest saturate (OCP, torchao's default)
  kEven,     ///< kFloor for m rounded to the format's mantissa (compressed-tensors, vLLM, Quark)
  kRoundUp,  ///< ceil(log2(m / largest)); never saturates (cuBLAS)
};
/// "floor", "even", "rceil".
PTQWATCH_EXPORT std::string_view ToString(ScaleRule rule);
PTQWATCH_EXPORT absl::StatusOr<ScaleRule> ParseScaleRule(std::string_view name);
/// Returns the only bit width of a method: 8 for LLM.int8, 4 for NF4, nullopt if several are
/// allowed.
PTQWATCH_EXPORT std::optional<int> FixedBits(QuantizationMethod method);

/// The order in which GPTQ processes the input columns. Groups always follow the original order
/// ("static groups").
enum class QuantizationOrder {
  kNone,       ///< 0, 1, 2, ...
  kStaticAct,  ///< by descending diag(H), ties by lower index
};
/// "none", "act".
PTQWATCH_EXPORT std::string_view ToString(QuantizationOrder order);
PTQWATCH_EXPORT absl::StatusOr<QuantizationOrder> ParseQuantizationOrder(std::string_view name);

/// The type that scales are stored in (for LLM.int8 and NF4, the absmax).
///
/// Scales are rounded to this type, half to even, before zeros and codes are computed (but see
/// QuantizerSpec::round_scale_last), so errors are measured on the weight that would be deployed. A
/// scale that would underflow becomes the smallest positive number; a scale that overflows makes
/// the layer unsupported.
enum class ScaleDtype { kFloat32, kFloat16, kBFloat16 };
/// "f32", "f16", "bf16".
PTQWATCH_EXPORT std::string_view ToString(ScaleDtype dtype);
PTQWATCH_EXPORT absl::StatusOr<ScaleDtype> ParseScaleDtype(std::string_view name);

/// The range that a grid covers. The last two are for symmetric integer grids, and take
/// QuantizerSpec::clip_value; where they give no positive range, as for zeros, a constant or a
/// single weight, the grid covers max|w|.
enum class ClipSearch {
  kNone,  ///< all weights of the group
  /// Picks the range with the smallest error; the first one on a tie.
  ///   RTN, GPTQ  80 shrink factors 1, 0.99, ..., 0.21 of both ends of the range. Error: the sum
  ///              of diag(H)_j (w_j - q_j)^2 over the group; without statistics diag(H) is 1.
  ///   AWQ        10 shares 1, 0.95, ..., 0.55 of max|w|, at the channel scale that won without
  ///              clipping. Error: dW H_gg dW^T with the group's diagonal block of H. Clipping is
  ///              dropped, and status_detail says so, if it raises the loss of the whole layer.
  kMse,
  /// +- the clip_value-th percentile of |w|, interpolated linearly as by torch.quantile.
  kPercentile,
  /// +- clip_value standard deviations of the weights, unbiased as by torch.std. May be more than
  /// max|w|.
  kStd,
};
/// "none", "mse", "percentile", "std".
PTQWATCH_EXPORT std::string_view ToString(ClipSearch clip);
PTQWATCH_EXPORT absl::StatusOr<ClipSearch> ParseClipSearch(std::string_view name);

/// The activations that a model's layers are calibrated with.
enum class CalibrationMode {
  /// Activations of the full-precision forward pass. One run over the calibration data serves all
  /// quantizers.
  kOneShot,
  /// Activations of the partly quantized model: a layer is calibrated on the outputs of quantized
  /// earlier layers, as in deployment. Each quantizer that needs statistics runs over the
  /// calibration data once per distinct layer input.
  kSequential,
};
/// "one_shot", "sequential".
PTQWATCH_EXPORT std::string_view ToString(CalibrationMode mode);
PTQWATCH_EXPORT absl::StatusOr<CalibrationMode> ParseCalibrationMode(std::string_view name);

/// How to quantize one weight matrix. Each method ignores the fields that do not apply to it.
/// LLM.int8 and NF4 use only `bits` (8 and 4), `scale_dtype` and, for LLM.int8,
/// `outlier_threshold`.
struct QuantizerSpec {
  QuantizationMethod method = QuantizationMethod::kGptq;
  int bits = 4;  ///< 2 to 8
  /// RTN and GPTQ only. A format other than integers decides bits, is symmetric, and MX and NVFP4
  /// formats also decide the group size.
  QuantizationFormat format = QuantizationFormat::kInt;
  ScaleRule scale_rule = ScaleRule::kEven;  ///< MX formats only
  /// Number of inputs that share a scale; the last group of a row may be shorter. -1: the whole
  /// row.
  int group_size = 128;
  /// Number of rows that share a scale: with group_size 128 and 128 rows, scales belong to square
  /// blocks. -1: all rows. RTN and GPTQ without clipping only; MX and NVFP4 formats need 1.
  int group_rows = 1;
  /// RTN and GPTQ only: quantizes W B and rotates back, with B the orthonormal Hadamard matrix on
  /// blocks of this many inputs (arXiv 2509.23202): 16, 32, 64 or 128; 0: none. Inputs beyond the
  /// last whole block are not rotated.
  int rotation = 0;
  /// Symmetric grids have zero = 2^(bits-1) and cover +-max|w|; asymmetric ones cover [min(w,0),
  /// max(w,0)].
  bool symmetric = true;
  /// Symmetric integer grids only: codes are 1 .. 2^bits - 1, so that there are as many steps on
  /// either side of zero, and scale = m / (2^(bits-1) - 1) for the range +-m.
  bool narrow_range = false;
  QuantizationOrder order = QuantizationOrder::kStaticAct;  ///< GPTQ only
  double damp = 0.01;  ///< GPTQ only: added to diag(H), relative to the mean over live columns
  /// GPTQ only: the fewest calibration rows, as a multiple of the number of inputs. With fewer, RTN
  /// is used and the status is too_few_tokens. 0 switches the rule off.
  double min_tokens_ratio = 0.125;
  ScaleDtype scale_dtype = ScaleDtype::kFloat32;
  /// RTN on symmetric integer grids without kMse only: codes are those of the float32 scale, of
  /// weights that are clipped to the range first. The scale is rounded to scale_dtype afterwards,
  /// and a weight is code * rounded scale.
  bool round_scale_last = false;
  /// Integer grids only: no scale is smaller, before it is rounded to scale_dtype.
  double min_scale = 0;
  ClipSearch clip = ClipSearch::kNone;  ///< RTN, GPTQ and AWQ
  /// kPercentile: above 0, up to 100. kStd: above 0. Other rules: 0.
  double clip_value = 0;
  /// LLM.int8 only: if |x| of an input reaches this anywhere in the calibration data, its column of
  /// the weight stays in full precision. 0: keeps no column and needs no statistics.
  double outlier_threshold = 6.0;
  /// Also compute error_parts and, with GPTQ, rtn_loss and output_energy. On a wide layer, each of
  /// these two takes as long as the quantization, unless an earlier call on the same LayerQuantizer
  /// computed it. Does not change the codes.
  bool baselines = true;

  friend bool operator==(const QuantizerSpec&, const QuantizerSpec&) = default;
};

/// Gives some layers another spec.
struct SpecOverride {
  std::string layers = {};  ///< glob over parameter names
  QuantizerSpec spec = {};
  /// The short name of the quantizer (ShortName) in which these layers use `spec`, whatever its
  /// method, bits and format. Empty: as the list of overrides says.
  std::string of = {};
};

/// Returns RTN and GPTQ at 3 and 4 bits, the default of MonitorOptions::quantizers.
PTQWATCH_EXPORT std::vector<QuantizerSpec> DefaultQuantizers();

/// Checks all fields. InvalidArgument names the field and its value.
PTQWATCH_EXPORT absl::Status Validate(const QuantizerSpec& spec);

/// Whether Quantize refuses to run without statistics.
PTQWATCH_EXPORT bool NeedsStatistics(const QuantizerSpec& spec);

/// Returns a text such as "gptq b4 g128 sym act damp 0.01", with every field that decides the
/// codes. The text of a spec never changes, because fingerprints of runs depend on it.
PTQWATCH_EXPORT std::string Describe(const QuantizerSpec& spec);
/// Returns the name of the grid that weights are rounded to, as the label `format` of reports and
/// metrics has it: the format's, or FormatOf(method) for integers, and a rotation: "int", "nf4",
/// "nvfp4", "mxfp4-h32", "int-h64".
PTQWATCH_EXPORT std::string FormatOf(const QuantizerSpec& spec);

/// Reads the short name of a quantizer in reports (ShortName): "gptq3", "nf4", "gptq-nvfp4",
/// "rtn4-int-h64". Other fields have their defaults. InvalidArgument if the name is unknown, or
/// leaves the bits open.
PTQWATCH_EXPORT absl::StatusOr<QuantizerSpec> ParseQuantizer(std::string_view name);

/// The outcome of quantizing one layer.
enum class LayerStatus {
  kOk,
  kDamped,        ///< GPTQ needed a larger damp than the spec's
  kTooFewTokens,  ///< too little calibration data: RTN codes instead of GPTQ or AWQ codes, or no
                  ///< outlier columns for LLM.int8
  kNonFinite,     ///< NaN or infinity in the weight or the statistics; no codes
  kRtnFallback,   ///< RTN codes instead of GPTQ codes: H could not be factorised at any damp
  kUnsupported,   ///< shape or spec cannot be quantized; no codes
};
/// "ok", "damped", "too_few_tokens", "nonfinite", "rtn_fallback", "unsupported".
PTQWATCH_EXPORT std::string_view ToString(LayerStatus status);
PTQWATCH_EXPORT absl::StatusOr<LayerStatus> ParseLayerStatus(std::string_view name);

/// A row-major [rows, cols] float32 matrix, not owned. A weight's rows are outputs and its cols
/// inputs.
struct MatrixView {
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
};

/// Second moments of a layer's inputs: sum = sum over rows x of x x^T.
struct GramStatistics {
  int64_t inputs = 0;            ///< d
  int64_t tokens = 0;            ///< number of finite rows, which are summed
  int64_t skipped_rows = 0;      ///< number of rows with a NaN or infinity, which are left out
  std::vector<double> sum = {};  ///< [d, d] row-major, symmetric
  /// [d]: sum of |x| over the finite rows. Needed by AWQ; may be empty for the other methods.
  std::vector<double> abs_sum = {};
  /// [d]: largest |x| of the finite rows. Needed by LLM.int8; may be empty for the other methods.
  std::vector<float> abs_max = {};
};

/// Sums X^T X over blocks of rows. Not thread-safe. Memory: 8 d^2 bytes plus a few packed panels.
///
/// Up to 256 inputs the sums are float64. Beyond that, products are summed in float32 over chunks
/// of 256 rows and in float64 across chunks. The result depends only on the sequence of rows of
/// each Add call.
class PTQWATCH_EXPORT GramAccumulator {
 public:
  explicit GramAccumulator(int64_t inputs);
  /// Adds the rows (tokens) of `x`. Errors: InvalidArgument if x.cols is not `inputs` or x is
  /// otherwise malformed, which leaves the sums unchanged; Cancelled, DeadlineExceeded and
  /// ResourceExhausted, which leave the accumulator empty.
  absl::Status Add(MatrixView x, const ExecutionContext& context = {});
  int64_t tokens() const { return stats_.tokens; }
  /// Moves the sums out, with both triangles filled, and leaves the accumulator empty.
  GramStatistics Take();

 private:
  GramStatistics stats_;
};

/// NF4: number of consecutive weights, row by row, that share one absmax. A block may span rows;
/// the last one may be shorter.
inline constexpr int64_t kNf4Block = 64;
/// NF4: the 16 levels of 4-bit NormalFloat, ascending from -1 to 1 (arXiv 2305.14314, appendix E).
PTQWATCH_EXPORT const std::array<float, 16>& Nf4Levels();

/// The squared error of round-to-nearest on power-of-two scales, by the three mechanisms of arXiv
/// 2605.20402, each relative to the sum of w^2. The parts add up to the error.
struct RoundingErrorParts {
  double dead_zone = 0;   ///< of weights that become 0
  double grid_noise = 0;  ///< of the other weights, if scales were max|w| / largest number
  double scale_bias = 0;  ///< what powers of two add for the other weights; may be negative
};

/// A weight on its grid. [m, d] is the weight's shape, G the number of groups of a row.
///
/// Some methods use the fields differently:
///   AWQ       codes, scale and zero belong to W * channel_scale (by column);
///             dequantized = scale * (code - zero) / channel_scale.
///   LLM.int8  code - 128 is the int8 code, zero is 128, scale [m] = absmax / 127; dequantized =
///             (code - 128) * absmax / 127, rounded to float32 once; outlier columns keep the
///             original weight.
///   NF4       codes are indices into Nf4Levels(), scale [ceil(m d / kNf4Block)] is the absmax of
///             each block, zero is empty; dequantized = level * absmax.
///
/// With a floating-point format, codes are its bits, with the sign first, and dequantized = scale *
/// number; zero is 0. NVFP4's scale is an E4M3 number, at least 2^-6, times max|W| / (448 * 6).
/// With a rotation, codes, scale and zero belong to W B, and dequantized to W.
struct QuantizedWeight {
  LayerStatus status = LayerStatus::kOk;
  /// Explains a status other than kOk, and notes facts such as skipped calibration rows.
  std::string status_detail;
  std::vector<uint8_t> codes;      ///< [m, d], 0 .. 2^bits - 1, original column order
  std::vector<float> scale;        ///< [m, G]
  std::vector<float> zero;         ///< [m, G], integers
  float tensor_scale = 0;          ///< NVFP4: 448 * 6 / max|W|, as compressed-tensors stores it
  std::vector<float> dequantized;  ///< [m, d]: scale * (code - zero)
  std::vector<int64_t> order;      ///< [d]: GPTQ handled column order[k] k-th; empty for RTN
  double damp = 0;                 ///< relative damping used; 0 for RTN
  double damp_value = 0;           ///< the absolute number added to the diagonal
  /// tr(dW H dW^T), H = 2/tokens * sum, undamped, dW = W - dequantized. Absent without statistics.
  std::optional<double> loss;
  /// The loss with the damped H, which GPTQ minimises; dead columns count as zero error.
  std::optional<double> loss_damped;
  /// Loss of round-to-nearest on the same grids; for AWQ without a channel scale, for LLM.int8 with
  /// no column kept. May be smaller than `loss`.
  std::optional<double> rtn_loss;
  /// MX formats only, for the weight that is rounded: with a rotation, for W B.
  std::optional<RoundingErrorParts> error_parts;
  /// tr(W H W^T), the reference for relative losses.
  std::optional<double> output_energy;
  /// Number of inputs that were always zero. Absent without tokens.
  std::optional<int64_t> dead_columns;
  /// Number of other inputs that equalled an earlier one in every row (H_ii = H_jj = H_ij). Absent
  /// without tokens.
  std::optional<int64_t> duplicate_columns;
  std::vector<float> channel_scale;  ///< AWQ: [d]
  double channel_scale_ratio = 0;    ///< AWQ: the best exponent r of mean|x|^r
  /// AWQ: [20], loss at r = 0, 0.05, ..., 0.95 (unclipped); infinite if a grid overflows.
  std::vector<double> search_losses;
  int64_t clipped_groups = 0;  ///< groups, over all rows, whose grid covers less than their range
  std::vector<int64_t> outlier_columns;  ///< LLM.int8: ascending
};

/// Quantizes one weight.
///
/// GPTQ needs `statistics`, AWQ also needs abs_sum, and LLM.int8 needs abs_max unless its threshold
/// is 0. Other methods accept null, but then report no losses.
///
/// Grid, code and decode arithmetic is IEEE float32 with round-half-to-even; the factorisation is
/// float64. The bits of the result do not depend on the number of threads.
///
/// Cost in multiply-adds: d^3/6 + 3/2 m d^2 for GPTQ, 21/2 m d^2 for AWQ, up to 3/2 m d^2 for the
/// others; each loss takes m d^2 / 2 of it. Memory: about 5 m d bytes, plus 6 d^2 + 4 m d for GPTQ.
///
/// Errors: InvalidArgument (invalid spec, mismatched shapes, missing or negative statistics),
/// Cancelled, DeadlineExceeded, ResourceExhausted. Bad data is reported in the status of the
/// result, not as an error.
PTQWATCH_EXPORT absl::StatusOr<QuantizedWeight> Quantize(MatrixView weight,
                                                         const GramStatistics* statistics,
                                                         const QuantizerSpec& spec,
                                                         const ExecutionContext& context = {});

/// Quantizes one weight in several ways and computes shared values only once, on first use:
/// output_energy, the round-to-nearest loss on each grid, GPTQ's factor for the latest order and
/// damp, the column counts, and the check for non-finite numbers. Each result has the same bits as
/// that of the function Quantize, regardless of earlier calls.
///
/// Not thread-safe. Between calls it keeps the factor, about 2 d^2 bytes, reserved in the context
/// of the call that computed it. Drops the factor if another call needs the memory.
class PTQWATCH_EXPORT LayerQuantizer {
 public:
  /// Takes the arguments of Quantize. The data behind them must outlive this object and not change.
  LayerQuantizer(MatrixView weight, const GramStatistics* statistics) noexcept;
  LayerQuantizer(LayerQuantizer&&) noexcept;
  LayerQuantizer& operator=(LayerQuantizer&&) noexcept;
  ~LayerQuantizer();

  /// Same as the function Quantize.
  absl::StatusOr<QuantizedWeight> Quantize(const QuantizerSpec& spec,
                                           const ExecutionContext& context = {});

 private:
  struct Shared;
  MatrixView weight_;
  const GramStatistics* statistics_;
  std::unique_ptr<Shared> shared_;  // null until the first call
};

}  // namespace ptqwatch

#endif  // PTQWATCH_QUANTIZER_H_
