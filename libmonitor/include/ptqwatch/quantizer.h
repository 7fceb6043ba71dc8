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
};
/// "rtn", "gptq".
std::string_view ToString(QuantizationMethod method);
/// InvalidArgument, listing the known names, for any other name.
absl::StatusOr<QuantizationMethod> ParseQuantizationMethod(std::string_view name);

/// The order in which GPTQ visits the input columns. Groups always follow the original order
/// ("static groups").
enum class QuantizationOrder {
  kNone,       ///< 0, 1, 2, ...
  kStaticAct,  ///< by descending diag(H), ties by lower index
};

/// How one weight matrix is quantized.
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

  friend bool operator==(const QuantizerSpec&, const QuantizerSpec&) = default;
};

/// InvalidArgument naming the field and its value.
absl::Status Validate(const QuantizerSpec& spec);

/// "gptq b4 g128 sym act damp 0.01": every field that decides the codes.
std::string Describe(const QuantizerSpec& spec);

enum class LayerStatus {
  kOk,
  kDamped,        ///< GPTQ needed a larger damp than asked for
  kTooFewTokens,  ///< GPTQ asked for, RTN codes given: too little calibration data
  kNonFinite,     ///< NaN or infinity in the weight or in H; no codes
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
  absl::Status Add(ExecutionContext& context, MatrixView x);
  int64_t tokens() const { return stats_.tokens; }
  /// Mirrors the triangle and hands the sums over; the accumulator is empty afterwards.
  GramStatistics Take();

 private:
  GramStatistics stats_;
};

/// A weight on its grid. G = number of groups of a row.
struct QuantizedWeight {
  LayerStatus status = LayerStatus::kOk;
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
  /// Loss of round-to-nearest on the same grids.
  std::optional<double> rtn_loss;
  /// tr(W H W^T): what the losses are relative to.
  std::optional<double> output_energy;
};

/// Quantizes one weight. `statistics` may be null for RTN (losses are then absent); GPTQ needs it.
/// The grid, code and decode arithmetic is IEEE float32 with round-half-to-even; the factorisation
/// is float64. Columns whose diag(H) is 0 decode to 0 under GPTQ. Single-threaded, deterministic.
/// Cost of GPTQ: about d^3/3 + m d^2 multiply-adds; memory: about 6 d^2 + 9 m d bytes. Errors:
/// InvalidArgument (spec, shapes that do not match), Cancelled, ResourceExhausted. Bad data is not
/// an error but a status in the result.
absl::StatusOr<QuantizedWeight> Quantize(ExecutionContext& context, MatrixView weight,
                                         const GramStatistics* statistics,
                                         const QuantizerSpec& spec);

}  // namespace ptqwatch

#endif  // PTQWATCH_QUANTIZER_H_
