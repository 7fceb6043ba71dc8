#ifndef PTQWATCH_TESTS_UNIT_QUANTIZE_REFERENCE_H_
#define PTQWATCH_TESTS_UNIT_QUANTIZE_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "ptqwatch/quantizer.h"

namespace ptqwatch::testing {

/// A row-major float matrix that owns its numbers.
struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> values;

  Matrix(int64_t r, int64_t c) : rows(r), cols(c), values(static_cast<size_t>(r * c)) {}
  float& at(int64_t r, int64_t c) { return values[static_cast<size_t>(r * cols + c)]; }
  float at(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * cols + c)]; }
  MatrixView view() const { return {.data = values.data(), .rows = rows, .cols = cols}; }
};

/// Independent standard normal numbers.
Matrix RandomMatrix(int64_t rows, int64_t cols, uint64_t seed);
/// Tokens whose neighbouring channels are correlated; every 37th channel is 20 times larger.
Matrix CorrelatedInputs(int64_t rows, int64_t cols, uint64_t seed);

/// Sums of X^T X in float64, entry by entry, over rows that are finite.
GramStatistics NaiveGram(const Matrix& x);
/// The same through GramAccumulator.
GramStatistics Gram(const Matrix& x);
/// Statistics whose H is the given [d, d] matrix.
GramStatistics WithHessian(std::vector<double> hessian);

/// A quantized weight by the definition: everything float64 but the grid, column by column with the
/// Cholesky factor of H^-1.
struct ReferenceResult {
  std::vector<int> codes;
  std::vector<float> scale;
  std::vector<float> zero;
  std::vector<float> dequantized;
  std::vector<int64_t> order;
  double damp_value = 0;
  double loss = 0;
  double loss_damped = 0;
  double rtn_loss = 0;
  double output_energy = 0;
};
ReferenceResult ReferenceGptq(const Matrix& weight, const GramStatistics& statistics,
                              const QuantizerSpec& spec);

/// The grid of one group by the definition, float32 scales.
struct GroupGrid {
  GroupGrid(float low, float high, const QuantizerSpec& spec);
  /// For the range of these weights, or that of the spec's clip rule.
  GroupGrid(const std::vector<float>& weights, const QuantizerSpec& spec);
  int Code(float w) const;
  float Nearest(float w) const;

  float bottom = 0;
  float top = 0;
  float scale = 0;
  float zero = 0;
};

/// The end of the range +-limit of ClipSearch::kPercentile, from the sorted magnitudes, and kStd,
/// in two passes.
float ClipLimit(const std::vector<float>& weights, const QuantizerSpec& spec);

/// tr(E H E^T), E = a - b, in float64.
double NaiveTrace(const std::vector<float>& a, const std::vector<float>& b,
                  const GramStatistics& statistics);

/// For as long as it lives, kernels run on the given Highway target only (it must be one this
/// machine has).
class OnlyTarget {
 public:
  explicit OnlyTarget(int64_t target);
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;
  ~OnlyTarget();
};
/// The targets that are built in and that this machine can run.
std::vector<int64_t> UsableTargets();

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_UNIT_QUANTIZE_REFERENCE_H_
