#ifndef PTQWATCH_QUANTIZER_H_
#define PTQWATCH_QUANTIZER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch {

enum class QuantizationMethod {
  kRtn,   ///< round to nearest
  kGptq,  ///< Frantar et al. 2022, arXiv 2210.17323, in its LDLQ form (Chee et al. 2023, arXiv
          ///< 2307.13304)
  kAwq,   ///< activation-aware channel scales, Lin et al. 2023, arXiv 2306.00978, searched with H
          ///< and mean |x| alone
  kLlmInt8,  ///< row-wise absmax int8, outlier columns kept; Dettmers et al. 2022, arXiv 2208.07339
  kNf4,      ///< 4-bit NormalFloat in flat blocks of 64; Dettmers et al. 2023, arXiv 2305.14314
};
/// "rtn", "gptq", "awq", "llm_int8", "nf4".
std::string_view ToString(QuantizationMethod method);
/// InvalidArgument, listing the known names, for any other name. Case and the characters '.', '_'
/// and '-' do not count: "LLM.int8" is "llm_int8".
absl::StatusOr<QuantizationMethod> ParseQuantizationMethod(std::string_view name);

/// The order in which GPTQ visits the input columns. Groups always follow the original order
/// ("static groups").
enum class QuantizationOrder {
  kNone,       ///< 0, 1, 2, ...
  kStaticAct,  ///< by descending diag(H), ties by lower index
};

/// What scales are stored as. They are rounded to it (half to even) before zero and codes are
/// computed from them, so that the weight whose error is measured is the one that would be
/// deployed. A scale too small for it becomes the smallest positive number; one too large makes the
/// layer unsupported. For LLM.int8 and NF4 the absmax is what is stored.
enum class ScaleDtype { kFloat32, kFloat16, kBFloat16 };
/// "f32", "f16", "bf16".
std::string_view ToString(ScaleDtype dtype);
absl::StatusOr<ScaleDtype> ParseScaleDtype(std::string_view name);

/// Whether grids may cover less than the largest weight of their group.
enum class ClipSearch {
  kNone,
  /// RTN and GPTQ: of 80 shrink factors 1, 0.99, ..., 0.21 of both ends of the grid the one with
  /// the smallest sum of diag(H)_j (w_j - q_j)^2 over the group, the first on a tie; without
  /// statistics diag(H) is 1.
  /// AWQ: at the channel scale that won without clipping, of 10 shares 1, 0.95, ..., 0.55 of max|w|
  /// that the grid reaches to, the one with the smallest output error of the group alone, dW H_gg
  /// dW^T with the group's diagonal block of H. Left out, and said in status_detail, when
  /// the loss of the whole layer would grow.
  kMse,
};

/// How one weight matrix is quantized. What a method has no use for is ignored: LLM.int8 and NF4
/// take only `bits` (which must be 8 and 4), `outlier_threshold` (LLM.int8) and `scale_dtype`.
struct QuantizerSpec {
  QuantizationMethod method = QuantizationMethod::kGptq;
  int bits = 4;  ///< 2, 3, 4 or 8
  /// Inputs that share a scale; the last group of a row may be shorter. -1: the whole row.
  int group_size = 128;
  /// Symmetric grids have zero = 2^(bits-1) and cover +-max|w|; asymmetric ones cover [min(w,0),
  /// max(w,0)].
  bool symmetric = true;
  QuantizationOrder order = QuantizationOrder::kStaticAct;  ///< GPTQ only
  double damp = 0.01;  ///< GPTQ only: added to diag(H), relative to the mean over live columns
  /// GPTQ only: with fewer calibration rows than this times the number of inputs, H says too little
  /// and RTN is used (status too_few_tokens). 0 switches the rule off.
  double min_tokens_ratio = 0.125;
  ScaleDtype scale_dtype = ScaleDtype::kFloat32;
  ClipSearch clip = ClipSearch::kNone;  ///< RTN, GPTQ and AWQ
  /// LLM.int8 only: inputs with an |x| of at least this somewhere in the calibration data keep
  /// their column of the weight. 0: no column is kept, and no statistics are needed.
  double outlier_threshold = 6.0;
  /// GPTQ only: also measure rtn_loss and output_energy, each of which takes as long as the
  /// quantizing itself on a wide layer. Without it they are absent, and codes are the same.
  bool baselines = true;

  friend bool operator==(const QuantizerSpec&, const QuantizerSpec&) = default;
};

/// InvalidArgument naming the field and its value.
absl::Status Validate(const QuantizerSpec& spec);

/// "gptq b4 g128 sym act damp 0.01": every field that decides the codes.
std::string Describe(const QuantizerSpec& spec);

enum class LayerStatus {
  kOk,
  kDamped,        ///< GPTQ needed a larger damp than asked for
  kTooFewTokens,  ///< too little calibration data: RTN codes where GPTQ or AWQ was asked for, no
                  ///< outlier columns for LLM.int8
  kNonFinite,     ///< NaN or infinity in the weight or the statistics; no codes
  kRtnFallback,   ///< GPTQ asked for, RTN codes given: H could not be factorised at any damp
  kUnsupported,   ///< shape or spec cannot be quantized; no codes
};
/// "ok", "damped", "too_few_tokens", "nonfinite", "rtn_fallback", "unsupported".
std::string_view ToString(LayerStatus status);

/// A row-major [rows, cols] float32 matrix that somebody else owns: rows are outputs, cols are
/// inputs.
struct MatrixView {
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
};

/// Second moments of a layer's inputs: sum = sum over rows x of x x^T.
struct GramStatistics {
  int64_t inputs = 0;            ///< d
  int64_t tokens = 0;            ///< finite rows that were summed
  int64_t skipped_rows = 0;      ///< rows with a NaN or infinity, left out
  std::vector<double> sum = {};  ///< [d, d] row-major, symmetric
  /// Sum of |x| over the finite rows, [d], and the largest |x|, [d]. AWQ needs the former, LLM.int8
  /// the latter; where statistics come from elsewhere they may be empty for the other methods.
  std::vector<double> abs_sum = {};
  std::vector<float> abs_max = {};
};

/// Sums X^T X over blocks of rows: upper triangle only; in float64 up to 256 inputs, beyond that
/// products summed in float32 over chunks of 256 rows and in float64 across chunks, rows in the
/// order given. The result depends on nothing but the sequence of rows of each Add call. Not
/// thread-safe. Memory: 8 d^2 bytes plus a few packed panels.
class GramAccumulator {
 public:
  explicit GramAccumulator(int64_t inputs);
  /// Rows of `x` are tokens, cols must equal `inputs`. InvalidArgument for other shapes, which
  /// leaves the sums as they were. Cancelled and ResourceExhausted leave the accumulator empty:
  /// half of a block must not pass for data.
  absl::Status Add(MatrixView x, const ExecutionContext& context = {});
  int64_t tokens() const { return stats_.tokens; }
  /// Mirrors the triangle and hands the sums over; the accumulator is empty afterwards.
  GramStatistics Take();

 private:
  GramStatistics stats_;
};

/// A weight on its grid. G = number of groups of a row.
/// What the fields hold where a method has another form:
///   AWQ       codes, scale and zero are those of W * channel_scale (columns);
///             dequantized = scale * (code - zero) / channel_scale.
///   LLM.int8  code - 128 is the int8 code, zero is 128, scale [m] = absmax / 127; dequantized =
///             (code - 128) * absmax / 127, rounded to float32 once, and the original weight in
///             outlier columns.
///   NF4       codes are indices into Nf4Levels() (nf4.h), scale [ceil(m d / 64)] is the absmax of
///             each block of 64 consecutive weights, zero is empty; dequantized = level * absmax.
struct QuantizedWeight {
  LayerStatus status = LayerStatus::kOk;
  /// Why the status is not ok; or what else is worth knowing, such as calibration rows left out.
  std::string status_detail;
  std::vector<uint8_t> codes;      ///< [m, d], 0 .. 2^bits - 1, original column order
  std::vector<float> scale;        ///< [m, G]
  std::vector<float> zero;         ///< [m, G], integers
  std::vector<float> dequantized;  ///< [m, d]: scale * (code - zero)
  std::vector<int64_t> order;      ///< [d]: position k handled column order[k]; empty for RTN
  double damp = 0;                 ///< relative damping used; 0 for RTN
  double damp_value = 0;           ///< the absolute number added to the diagonal
  /// tr(dW H dW^T), H = 2/tokens * sum, undamped, dW = W - dequantized. Absent without statistics.
  std::optional<double> loss;
  /// The same with the damped H, which GPTQ minimises; dead columns count as zero error.
  std::optional<double> loss_damped;
  /// Loss of round-to-nearest on the same grids: for AWQ without a channel scale, for LLM.int8 with
  /// no column kept. Never swapped for `loss` where that is larger.
  std::optional<double> rtn_loss;
  /// tr(W H W^T): what the losses are relative to.
  std::optional<double> output_energy;
  /// Inputs that were always zero, and other inputs that were equal to an earlier one in every row
  /// (H_ii = H_jj = H_ij). Absent without tokens.
  std::optional<int64_t> dead_columns;
  std::optional<int64_t> duplicate_columns;
  std::vector<float> channel_scale;  ///< AWQ: [d]
  double channel_scale_ratio = 0;    ///< AWQ: the exponent r of mean|x|^r that won
  /// AWQ: [20], loss at r = 0, 0.05, ..., 0.95 (unclipped); infinite where a grid overflows.
  std::vector<double> search_losses;
  int64_t clipped_groups = 0;  ///< groups, over all rows, whose grid covers less than their range
  std::vector<int64_t> outlier_columns;  ///< LLM.int8: ascending
};

/// Quantizes one weight. GPTQ needs `statistics`, AWQ needs them with abs_sum, LLM.int8 with
/// abs_max unless its threshold is 0; elsewhere they may be null (losses are then absent). The
/// grid, code and decode arithmetic is IEEE float32 with round-half-to-even; the factorisation is
/// float64. Columns whose diag(H) is 0 decode to 0 under GPTQ. Deterministic. Cost in
/// multiply-adds, of which every loss takes m d^2 / 2: GPTQ d^3/6 + 3/2 m d^2, AWQ 21/2 m d^2, the
/// others up to 3/2 m d^2. Memory: about 5 m d bytes, GPTQ another 6 d^2 + 4 m d. Errors:
/// InvalidArgument (spec, shapes that do not match, statistics that are missing or negative),
/// Cancelled, DeadlineExceeded, ResourceExhausted. Bad data is not an error but a status in the
/// result.
absl::StatusOr<QuantizedWeight> Quantize(MatrixView weight, const GramStatistics* statistics,
                                         const QuantizerSpec& spec,
                                         const ExecutionContext& context = {});

}  // namespace ptqwatch

#endif  // PTQWATCH_QUANTIZER_H_
