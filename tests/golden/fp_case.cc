#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "golden/golden_case.h"
#include "golden/golden_compare.h"
#include "ptqwatch/quantizer.h"
#include "quantize/kernels/number_format.h"

namespace ptqwatch::testing {
namespace {

using internal::GroupScale;
using internal::NumberFormat;
using internal::NumbersOf;
using internal::StrCat;

constexpr double kFpCodesShare = 0.003;         // of a gptqfp file's values that may differ
constexpr double kTensorScaleTolerance = 1e-6;  // one rounding of an inverse
constexpr double kTurnedTolerance = 1e-6;       // of a rotated back value, of the row's largest

// A grid by the names in the files.
struct FpGrid {
  std::string_view format, scaling;
  QuantizationFormat numbers;
  int group_size = -1;
  int group_rows = 1;
};
constexpr FpGrid kFpGrids[] = {
    {"e2m1", "mx", QuantizationFormat::kMxfp4},
    {"e4m3", "mx", QuantizationFormat::kMxfp8},
    {"e2m1", "nv", QuantizationFormat::kNvfp4},
    {"e4m3", "channel", QuantizationFormat::kFp8},
    {"e4m3", "tensor", QuantizationFormat::kFp8, -1, -1},
    {"e4m3", "block", QuantizationFormat::kFp8, 128, 128},
    {"e5m2", "channel", QuantizationFormat::kFp8E5m2},
    {"e5m2", "tensor", QuantizationFormat::kFp8E5m2, -1, -1},
    {"e5m2", "block", QuantizationFormat::kFp8E5m2, 128, 128},
};

struct FpCase {
  GoldenMatrix weight;
  QuantizerSpec spec;
  std::vector<uint8_t> codes;
  std::vector<float> scale;
  std::vector<uint8_t> scale_code;  // empty if scales are not coded
  float tensor_scale = 1;
  std::vector<float> rounded;      // the weight on its grid: rotated, if the case is
  std::vector<float> dequantized;  // turned back
};

absl::StatusOr<QuantizerSpec> ReadFpSpec(const GoldenFile& file, QuantizationMethod method) {
  std::string format;
  std::string scaling;
  absl::Status status;
  Get(file.Text("format"), &format, &status);
  Get(file.Text("scaling"), &scaling, &status);
  if (!status.ok()) return status;
  const FpGrid* const end = std::end(kFpGrids);
  const FpGrid* const grid = std::find_if(std::begin(kFpGrids), end, [&](const FpGrid& g) {
    return g.format == format && g.scaling == scaling;
  });
  if (grid == end) {
    return absl::DataLossError(
        StrCat("metadata 'format' is '", format, "' with 'scaling' '", scaling, "'"));
  }
  QuantizerSpec spec{.method = method,
                     .bits = FixedBits(grid->numbers).value_or(0),
                     .format = grid->numbers,
                     .group_size = grid->group_size,
                     .group_rows = grid->group_rows,
                     .min_tokens_ratio = 0};  // the definition has no such rule
  if (NumbersOf(spec).scale == GroupScale::kE8m0) {
    std::string rule;
    Get(file.Text("scale_rule"), &rule, &status);
    if (status.ok()) Get(ParseScaleRule(rule), &spec.scale_rule, &status);
  }
  if (file.Text("rotation").ok()) Get(file.Integer("rotation"), &spec.rotation, &status);
  if (method == QuantizationMethod::kGptq) Get(file.Number("damp"), &spec.damp, &status);
  if (!status.ok()) return status;
  if (status = Validate(spec); !status.ok()) return absl::DataLossError(status.message());
  return spec;
}

absl::StatusOr<FpCase> ReadFpCase(const GoldenFile& file, QuantizationMethod method) {
  FpCase c;
  absl::Status status;
  Get(ReadMatrix(file, "weight"), &c.weight, &status);
  if (!status.ok()) return status;
  Get(ReadFpSpec(file, method), &c.spec, &status);
  if (!status.ok()) return status;
  const int64_t rows = c.weight.rows;
  const int64_t cols = c.weight.cols;
  const int64_t group = internal::GroupSizeOf(c.spec, cols);
  const int64_t groups = (cols + group - 1) / group;
  Get(file.Uint8s("codes", {rows, cols}), &c.codes, &status);
  Get(file.Floats("scale", {rows, groups}), &c.scale, &status);
  if (NumbersOf(c.spec).scale != GroupScale::kSpec) {
    Get(file.Uint8s("scale_code", {rows, groups}), &c.scale_code, &status);
  }
  if (NumbersOf(c.spec).scale == GroupScale::kE4m3) {
    std::vector<float> tensor_scale;
    Get(file.Floats("tensor_scale", {1}), &tensor_scale, &status);
    if (status.ok()) c.tensor_scale = tensor_scale[0];
  }
  Get(file.Floats("dequantized", {rows, cols}), &c.dequantized, &status);
  c.rounded = c.dequantized;
  if (c.spec.rotation != 0) {
    Get(file.Floats("rotated_dequantized", {rows, cols}), &c.rounded, &status);
  }
  if (!status.ok()) return status;
  return c;
}

// The scale that a file stores as `code`.
float DecodeScale(uint8_t code, const FpCase& c) {
  return NumbersOf(c.spec).scale == GroupScale::kE8m0
             ? std::ldexp(1.0f, code - 127)
             : internal::E4m3().Level(code) * c.tensor_scale;
}

// Both zeros are the same here.
int32_t PlainCode(uint8_t code, const NumberFormat& numbers) {
  return numbers.Level(code) == 0 ? 0 : code;
}

void CompareScales(const FpCase& c, const QuantizedWeight& got, GoldenResult* result) {
  CompareEqual("scale", got.scale, c.scale, result);
  if (c.scale_code.empty()) return;
  std::vector<float> decoded;
  for (const uint8_t code : c.scale_code) decoded.push_back(DecodeScale(code, c));
  CompareEqual("scale_code", got.scale, decoded, result);
  if (NumbersOf(c.spec).scale != GroupScale::kE4m3) return;
  CompareNumber("tensor_scale", 1 / static_cast<double>(got.tensor_scale),
                static_cast<double>(c.tensor_scale), kTensorScaleTolerance, result);
}

// Values of a weight that was rotated back, in rows with the expected codes.
void CompareTurnedBack(const FpCase& c, const QuantizedWeight& got, const QuantizedWeight& rounded,
                       GoldenResult* result) {
  const size_t cols = static_cast<size_t>(c.weight.cols);
  for (size_t begin = 0; begin < c.codes.size(); begin += cols) {
    double largest = 0;
    double error = 0;
    bool same = true;
    for (size_t i = begin; i < begin + cols; ++i) {
      same = same && rounded.dequantized[i] == c.rounded[i];
      largest = std::max(largest, static_cast<double>(std::abs(c.dequantized[i])));
      error = std::max(error, static_cast<double>(std::abs(got.dequantized[i] - c.dequantized[i])));
    }
    if (same && !(error <= kTurnedTolerance * largest)) {
      Fail(StrCat("dequantized is off by ", error, " in row ", begin / cols), result);
    }
  }
}

void CompareValues(const FpCase& c, const QuantizedWeight& got, double share,
                   GoldenResult* result) {
  const NumberFormat& numbers = NumbersOf(c.spec);
  std::vector<int32_t> codes;
  for (const uint8_t code : c.codes) codes.push_back(PlainCode(code, numbers));
  QuantizedWeight plain = got;
  for (uint8_t& code : plain.codes) code = static_cast<uint8_t>(PlainCode(code, numbers));
  const bool whole = got.codes.size() == codes.size() && got.scale.size() == c.scale.size() &&
                     got.dequantized.size() == codes.size();
  if (c.spec.rotation != 0 && whole) {
    const size_t cols = static_cast<size_t>(c.weight.cols);
    const size_t group = static_cast<size_t>(internal::GroupSizeOf(c.spec, c.weight.cols));
    const size_t groups = (cols + group - 1) / group;
    for (size_t i = 0; i < codes.size(); ++i) {
      plain.dequantized[i] =
          got.scale[i / cols * groups + i % cols / group] * numbers.Level(plain.codes[i]);
    }
    CompareTurnedBack(c, got, plain, result);
  }
  CompareCodes(plain, codes, c.rounded, share, 0, result);
}

}  // namespace

absl::StatusOr<GoldenResult> CheckFp(const GoldenFile& file) {
  absl::StatusOr<FpCase> c = ReadFpCase(file, QuantizationMethod::kRtn);
  if (!c.ok()) return c.status();
  absl::StatusOr<QuantizedWeight> got = Quantize(c->weight.view(), nullptr, c->spec);
  if (!got.ok()) return got.status();
  GoldenResult result;
  CompareScales(*c, *got, &result);
  CompareValues(*c, *got, 0, &result);
  return result;
}

absl::StatusOr<GoldenResult> CheckGptqFp(const GoldenFile& file) {
  absl::StatusOr<FpCase> c = ReadFpCase(file, QuantizationMethod::kGptq);
  if (!c.ok()) return c.status();
  double loss = 0;
  double rtn_loss = 0;
  absl::Status status;
  Get(file.Number("loss"), &loss, &status);
  Get(file.Number("rtn_loss"), &rtn_loss, &status);
  if (!status.ok()) return status;

  ExecutionContext context;
  absl::StatusOr<GramStatistics> statistics = ReadStatistics(file, c->weight.cols, context);
  if (!statistics.ok()) return statistics.status();
  absl::StatusOr<QuantizedWeight> got = Quantize(c->weight.view(), &*statistics, c->spec, context);
  if (!got.ok()) return got.status();

  GoldenResult result;
  CompareScales(*c, *got, &result);
  CompareValues(*c, *got, kFpCodesShare, &result);
  CompareLoss("loss", got->loss, loss, &result);
  CompareLoss("rtn_loss", got->rtn_loss, rtn_loss, &result);
  return result;
}

}  // namespace ptqwatch::testing
