#include <cmath>
#include <utility>
#include <vector>

#include "golden/golden_case.h"
#include "golden/golden_compare.h"
#include "quantize/llm_int8.h"

namespace ptqwatch::testing {
namespace {

using internal::Int8Rows;
using internal::StrCat;

constexpr double kOutputTolerance = 1e-5;
constexpr double kErrorTolerance = 1e-3;  // of output_relative_error

struct Int8Case {
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

absl::StatusOr<Int8Case> ReadInt8Case(const GoldenFile& file) {
  Int8Case c;
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

std::vector<int8_t> CodesOf(const Int8Rows& rows) {
  std::vector<int8_t> codes;
  for (const uint8_t code : rows.codes) codes.push_back(static_cast<int8_t>(code - 128));
  return codes;
}

// X W^T as LLM.int8 computes it (arXiv 2208.07339, section 3): outlier columns in full precision,
// the others through int8 codes, whose products are summed exactly.
struct Int8Product {
  std::vector<int64_t> outlier_columns;  // those with an |x| of at least the threshold, ascending
  Int8Rows inputs;                       // per token, without the entries that reach the threshold
  std::vector<double> output;
};

// Takes the entries that reach the threshold, and then all of their columns, out of the codes.
absl::StatusOr<Int8Product> SplitInputs(const GoldenMatrix& x, double threshold) {
  Int8Product product;
  std::vector<bool> outlier(static_cast<size_t>(x.cols));
  std::vector<float> rest = x.values;
  for (size_t i = 0; i < rest.size(); ++i) {
    if (threshold == 0 || static_cast<double>(std::abs(rest[i])) < threshold) continue;
    outlier[i % outlier.size()] = true;
    rest[i] = 0;
  }
  absl::StatusOr<Int8Rows> codes = internal::QuantizeInt8Rows(
      {.data = rest.data(), .rows = x.rows, .cols = x.cols}, ScaleDtype::kFloat32);
  if (!codes.ok()) return codes.status();
  product.inputs = *std::move(codes);
  for (size_t i = 0; i < rest.size(); ++i) {
    if (outlier[i % outlier.size()]) product.inputs.codes[i] = 128;
  }
  for (size_t c = 0; c < outlier.size(); ++c) {
    if (outlier[c]) product.outlier_columns.push_back(static_cast<int64_t>(c));
  }
  return product;
}

absl::StatusOr<Int8Product> Multiply(const Int8Case& c, const Int8Rows& weight) {
  absl::StatusOr<Int8Product> product = SplitInputs(c.inputs, c.threshold);
  if (!product.ok()) return product.status();
  const size_t d = static_cast<size_t>(c.weight.cols);
  for (size_t t = 0; t < static_cast<size_t>(c.inputs.rows); ++t) {
    for (size_t o = 0; o < static_cast<size_t>(c.weight.rows); ++o) {
      double kept = 0;
      for (int64_t column : product->outlier_columns) {
        const size_t at = static_cast<size_t>(column);
        kept += static_cast<double>(c.inputs.values[t * d + at]) *
                static_cast<double>(c.weight.values[o * d + at]);
      }
      int64_t dot = 0;
      for (size_t i = 0; i < d; ++i) {
        dot += (product->inputs.codes[t * d + i] - 128) * (weight.codes[o * d + i] - 128);
      }
      product->output.push_back(kept + static_cast<double>(dot) *
                                           static_cast<double>(product->inputs.absmax[t]) *
                                           static_cast<double>(weight.absmax[o]) / (127.0 * 127.0));
    }
  }
  return product;
}

void CompareProduct(const Int8Case& c, const Int8Product& got, GoldenResult* result) {
  CompareEqual("outlier_columns of the product", got.outlier_columns, c.outlier_columns, result);
  CompareEqual("input_codes", CodesOf(got.inputs), c.input_codes, result);
  CompareEqual("input_absmax", got.inputs.absmax, c.input_absmax, result);
  if (!SameSize("output", got.output, c.output, result)) return;
  const double distance = RelativeDistance(got.output, c.output);
  if (!(distance <= kOutputTolerance)) Fail(StrCat("output is off by ", distance), result);
  CompareNumber("output_relative_error",
                RelativeDistance(got.output, ExactProduct(c.inputs, c.weight)), c.output_error,
                kErrorTolerance, result);
}

}  // namespace

absl::StatusOr<GoldenResult> CheckLlmInt8(const GoldenFile& file) {
  absl::StatusOr<Int8Case> c = ReadInt8Case(file);
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
  absl::StatusOr<Int8Rows> rows =
      internal::QuantizeInt8Rows(c->weight.view(), ScaleDtype::kFloat32, context);
  if (!rows.ok()) return rows.status();
  absl::StatusOr<Int8Product> product = Multiply(*c, *rows);
  if (!product.ok()) return product.status();

  GoldenResult result;
  std::vector<int32_t> codes(c->codes.begin(), c->codes.end());
  for (int32_t& code : codes) code += 128;
  CompareCodes(*got, codes, c->dequantized, 0, 0, &result);
  CompareEqual("codes", CodesOf(*rows), c->codes, &result);
  CompareEqual("absmax", rows->absmax, c->absmax, &result);
  CompareEqual("outlier_columns", got->outlier_columns, c->outlier_columns, &result);
  CompareEqual("dequantized", got->dequantized, c->dequantized, &result);
  CompareLoss("loss", got->loss, c->loss, &result);
  CompareProduct(*c, *product, &result);
  return result;
}

}  // namespace ptqwatch::testing
