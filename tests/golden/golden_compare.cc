#include "golden/golden_compare.h"

#include <cmath>
#include <limits>

namespace ptqwatch::testing {

using internal::StrCat;

absl::StatusOr<GoldenResult> CheckFile(const std::string& path, GoldenCheck* check) {
  absl::StatusOr<GoldenFile> file = GoldenFile::Read(path);
  if (!file.ok()) return file.status();
  absl::StatusOr<GoldenResult> result = check(*file);
  if (result.ok()) return result;
  return absl::Status(result.status().code(),
                      StrCat(path, ": ", std::string(result.status().message())));
}

void Fail(const std::string& why, GoldenResult* result) {
  if (result->failure.empty()) result->failure = why;
}

double RelativeError(double value, double expected) {
  if (value == expected) return 0;
  if (expected == 0) return std::numeric_limits<double>::infinity();
  return std::abs(value - expected) / std::abs(expected);
}

void CompareNumber(std::string_view name, std::optional<double> got, double wanted,
                   double tolerance, GoldenResult* result) {
  if (!got.has_value()) return Fail(StrCat(name, " is missing"), result);
  const double error = RelativeError(*got, wanted);
  if (!(error <= tolerance)) {
    Fail(StrCat(name, " is ", *got, " instead of ", wanted, ", relative error ", error), result);
  }
}

void CompareLoss(std::string_view name, std::optional<double> got, double wanted,
                 GoldenResult* result) {
  CompareNumber(name, got, wanted, kGoldenLossTolerance, result);
  if (got.has_value()) {
    result->loss_error = std::max(result->loss_error, RelativeError(*got, wanted));
  }
}

void CompareCodes(const QuantizedWeight& got, const std::vector<int32_t>& codes,
                  const std::vector<float>& dequantized, double share, double tolerance,
                  GoldenResult* result) {
  result->codes = static_cast<int64_t>(codes.size());
  if (got.codes.size() != codes.size() || got.dequantized.size() != codes.size()) {
    Fail(StrCat(got.codes.size(), " codes instead of ", codes.size(), " (status ",
                ToString(got.status), " ", got.status_detail, ")"),
         result);
    return;
  }
  for (size_t i = 0; i < codes.size(); ++i) {
    if (static_cast<int32_t>(got.codes[i]) != codes[i]) {
      ++result->codes_differ;
    } else if (!(RelativeError(static_cast<double>(got.dequantized[i]),
                               static_cast<double>(dequantized[i])) <= tolerance)) {
      Fail(StrCat("dequantized differs at entry ", i, ": ", got.dequantized[i], " instead of ",
                  dequantized[i]),
           result);
    }
  }
  if (result->codes_differ > 0 &&
      !(static_cast<double>(result->codes_differ) < share * static_cast<double>(codes.size()))) {
    Fail(StrCat(result->codes_differ, " of ", codes.size(), " codes differ"), result);
  }
}

double SumSquaredError(const std::vector<float>& weight, const std::vector<float>& dequantized) {
  double sum = 0;
  for (size_t i = 0; i < std::min(weight.size(), dequantized.size()); ++i) {
    const double error = static_cast<double>(weight[i]) - static_cast<double>(dequantized[i]);
    sum += error * error;
  }
  return sum;
}

absl::StatusOr<GoldenMatrix> ReadMatrix(const GoldenFile& file, std::string_view tensor) {
  // Matrices are small; a header that promises more is not a golden file.
  constexpr int64_t kMaxSide = 1 << 20;
  absl::StatusOr<std::vector<int64_t>> shape = file.Shape(tensor);
  if (!shape.ok()) return shape.status();
  if (shape->size() != 2 || (*shape)[0] < 1 || (*shape)[1] < 1 || (*shape)[0] > kMaxSide ||
      (*shape)[1] > kMaxSide) {
    return absl::DataLossError(StrCat("tensor '", tensor, "' is not a matrix of a usable size"));
  }
  absl::StatusOr<std::vector<float>> values = file.Floats(tensor, *shape);
  if (!values.ok()) return values.status();
  return GoldenMatrix{.rows = (*shape)[0], .cols = (*shape)[1], .values = *std::move(values)};
}

absl::StatusOr<GramStatistics> ReadStatistics(const GoldenFile& file, int64_t cols,
                                              const ExecutionContext& context) {
  if (!file.Has("inputs")) {
    absl::StatusOr<std::vector<double>> hessian = file.Doubles("hessian", {cols, cols});
    if (!hessian.ok()) return hessian.status();
    GramStatistics statistics;
    statistics.inputs = cols;
    statistics.tokens = 2;  // H = 2 / tokens * sum
    statistics.sum = *std::move(hessian);
    return statistics;
  }
  absl::StatusOr<GoldenMatrix> inputs = ReadMatrix(file, "inputs");
  if (!inputs.ok()) return inputs.status();
  GramAccumulator gram(cols);
  if (absl::Status status = gram.Add(inputs->view(), context); !status.ok()) {
    return absl::DataLossError(status.message());
  }
  return gram.Take();
}

}  // namespace ptqwatch::testing
