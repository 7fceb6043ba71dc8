#include <cmath>
#include <utility>
#include <vector>

#include "golden/golden_case.h"
#include "golden/golden_compare.h"
#include "ptqwatch/offline/llm_int8.h"

namespace ptqwatch::testing {
namespace {

using internal::StrCat;

constexpr double kOutputTolerance = 1e-5;
constexpr double kErrorTolerance = 1e-3;  // of output_relative_error

struct Case {
  GoldenMatrix weight;
  GoldenMatrix inputs;
  double threshold = 0;
  double loss = 0;
  double output_error = 0;
  std::vector<int8_t> codes;
  std::vector<float> absmax;
  std::vector<int64_t> outlier_columns;
  std::vector<int8_t> input_codes;
  std::vector<float> input_absmax;
  std::vector<float> dequantized;
  std::vector<double> output;
};

absl::StatusOr<Case> ReadCase(const SafetensorsFile& file) {
  Case c;
  absl::Status status;
  Get(ReadMatrix(file, "weight"), &c.weight, &status);
  Get(ReadMatrix(file, "inputs"), &c.inputs, &status);
  absl::StatusOr<std::vector<int64_t>> outliers = file.Shape("outlier_columns");
  status.Update(outliers.status());
  if (!status.ok()) return status;
  const int64_t m = c.weight.rows;
  const int64_t d = c.weight.cols;
  const int64_t n = c.inputs.rows;
  if (outliers->size() != 1 || c.inputs.cols != d) {
    return absl::DataLossError("tensors 'weight', 'inputs' and 'outlier_columns' do not fit");
  }
  Get(file.Number("threshold"), &c.threshold, &status);
  Get(file.Number("loss"), &c.loss, &status);
  Get(file.Number("output_relative_error"), &c.output_error, &status);
  Get(file.Int8s("codes", {m, d}), &c.codes, &status);
  Get(file.Floats("absmax", {m}), &c.absmax, &status);
  Get(file.Int64s("outlier_columns", *outliers), &c.outlier_columns, &status);
  Get(file.Int8s("input_codes", {n, d}), &c.input_codes, &status);
  Get(file.Floats("input_absmax", {n}), &c.input_absmax, &status);
  Get(file.Floats("dequantized", {m, d}), &c.dequantized, &status);
  Get(file.Doubles("output", {n, m}), &c.output, &status);
  if (!status.ok()) return status;
  return c;
}

// |a - b| / |b| in the Frobenius norm.
double RelativeDistance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

std::vector<double> ExactProduct(const GoldenMatrix& x, const GoldenMatrix& w) {
  std::vector<double> product;
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t o = 0; o < w.rows; ++o) {
      double sum = 0;
      for (int64_t c = 0; c < w.cols; ++c) {
        sum += static_cast<double>(x.values[static_cast<size_t>(t * x.cols + c)]) *
               static_cast<double>(w.values[static_cast<size_t>(o * w.cols + c)]);
      }
      product.push_back(sum);
    }
  }
  return product;
}

void CompareProduct(const Case& c, const LlmInt8Product& got, GoldenResult* result) {
  CompareEqual("outlier_columns of the product", got.outlier_columns, c.outlier_columns, result);
  CompareEqual("input_codes", got.inputs.codes, c.input_codes, result);
  CompareEqual("input_absmax", got.inputs.absmax, c.input_absmax, result);
  if (!SameSize("output", got.output, c.output, result)) return;
  const double distance = RelativeDistance(got.output, c.output);
  if (!(distance <= kOutputTolerance)) Fail(StrCat("output is off by ", distance), result);
  CompareNumber("output_relative_error",
                RelativeDistance(got.output, ExactProduct(c.inputs, c.weight)), c.output_error,
                kErrorTolerance, result);
}

absl::StatusOr<GoldenResult> CheckLlmInt8(const SafetensorsFile& file) {
  absl::StatusOr<Case> c = ReadCase(file);
  if (!c.ok()) return c.status();
  ExecutionContext context;
  absl::StatusOr<GramStatistics> statistics = ReadStatistics(file, c->weight.cols, context);
  if (!statistics.ok()) return statistics.status();
  QuantizerSpec spec;
  spec.method = QuantizationMethod::kLlmInt8;
  spec.bits = 8;
  spec.outlier_threshold = c->threshold;
  absl::StatusOr<QuantizedWeight> got = Quantize(c->weight.view(), &*statistics, spec, context);
  if (!got.ok()) return got.status();
  absl::StatusOr<Int8Rows> rows = QuantizeInt8Rows(c->weight.view(), ScaleDtype::kFloat32, context);
  if (!rows.ok()) return rows.status();
  absl::StatusOr<LlmInt8Product> product =
      MultiplyLlmInt8(c->inputs.view(), c->weight.view(), c->threshold, context);
  if (!product.ok()) return product.status();

  GoldenResult result;
  std::vector<int32_t> codes(c->codes.begin(), c->codes.end());
  for (int32_t& code : codes) code += 128;
  CompareCodes(*got, codes, c->dequantized, 0, 0, &result);
  CompareEqual("codes", rows->codes, c->codes, &result);
  CompareEqual("absmax", rows->absmax, c->absmax, &result);
  CompareEqual("outlier_columns", got->outlier_columns, c->outlier_columns, &result);
  CompareEqual("dequantized", got->dequantized, c->dequantized, &result);
  CompareLoss("loss", got->loss, c->loss, &result);
  CompareProduct(*c, *product, &result);
  return result;
}

}  // namespace

absl::StatusOr<GoldenResult> CheckLlmInt8File(const std::string& path) {
  return CheckFile(path, &CheckLlmInt8);
}

}  // namespace ptqwatch::testing
