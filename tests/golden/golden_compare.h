#ifndef PTQWATCH_TESTS_GOLDEN_GOLDEN_COMPARE_H_
#define PTQWATCH_TESTS_GOLDEN_GOLDEN_COMPARE_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/strings.h"
#include "golden/golden_case.h"
#include "golden/golden_file.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::testing {

constexpr double kGoldenLossTolerance = 1e-3;

/// Sets `*out`, or keeps the first error in `*status`.
template <typename T, typename U>
void Get(absl::StatusOr<T> value, U* out, absl::Status* status) {
  if (!value.ok()) {
    status->Update(value.status());
  } else {
    *out = *std::move(value);
  }
}

/// Keeps the first failure.
void Fail(const std::string& why, GoldenResult* result);

/// |value - expected| / |expected|.
double RelativeError(double value, double expected);

void CompareNumber(std::string_view name, std::optional<double> got, double wanted,
                   double tolerance, GoldenResult* result);
/// The same to 1e-3, noted in `loss_error`.
void CompareLoss(std::string_view name, std::optional<double> got, double wanted,
                 GoldenResult* result);

template <typename T>
bool SameSize(std::string_view name, const std::vector<T>& got, const std::vector<T>& wanted,
              GoldenResult* result) {
  if (got.size() == wanted.size()) return true;
  Fail(internal::StrCat(name, " has ", got.size(), " entries instead of ", wanted.size()), result);
  return false;
}

template <typename T>
void CompareEqual(std::string_view name, const std::vector<T>& got, const std::vector<T>& wanted,
                  GoldenResult* result) {
  if (!SameSize(name, got, wanted, result)) return;
  const auto [at, other] = std::mismatch(got.begin(), got.end(), wanted.begin());
  if (at == got.end()) return;
  // Through double: a stream would print one-byte integers as characters.
  Fail(internal::StrCat(name, " differs at entry ", at - got.begin(), ": ",
                        static_cast<double>(*at), " instead of ", static_cast<double>(*other)),
       result);
}

/// Every entry within `tolerance` of its own.
template <typename T>
void CompareEach(std::string_view name, const std::vector<T>& got, const std::vector<T>& wanted,
                 double tolerance, GoldenResult* result) {
  if (!SameSize(name, got, wanted, result)) return;
  for (size_t i = 0; i < got.size(); ++i) {
    CompareNumber(internal::StrCat(name, "[", i, "]"), static_cast<double>(got[i]),
                  static_cast<double>(wanted[i]), tolerance, result);
  }
}

/// Counts codes that differ; fails if they are `share` of all or more, and one at least.
/// `dequantized` must be within `tolerance`, relative, wherever the code is the expected one.
void CompareCodes(const QuantizedWeight& got, const std::vector<int32_t>& codes,
                  const std::vector<float>& dequantized, double share, double tolerance,
                  GoldenResult* result);

/// The sum of squares of weight - dequantized.
double SumSquaredError(const std::vector<float>& weight, const std::vector<float>& dequantized);

/// A matrix tensor of a usable size.
struct GoldenMatrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> values;

  MatrixView view() const { return {.data = values.data(), .rows = rows, .cols = cols}; }
};
absl::StatusOr<GoldenMatrix> ReadMatrix(const GoldenFile& file, std::string_view tensor);

/// Statistics of the inputs, or of the Hessian if a file has no inputs.
absl::StatusOr<GramStatistics> ReadStatistics(const GoldenFile& file, int64_t cols,
                                              const ExecutionContext& context);

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_GOLDEN_GOLDEN_COMPARE_H_
