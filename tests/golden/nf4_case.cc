#include <vector>

#include "golden/golden_case.h"
#include "golden/golden_compare.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::testing {
namespace {

constexpr double kNf4SquaredErrorTolerance = 1e-6;

// As the reference packs codes: two a byte, the earlier one in the high four bits. An odd count is
// filled up with code 7, which is level 0.
std::vector<uint8_t> PackNf4(const std::vector<uint8_t>& codes) {
  constexpr uint8_t kZeroCode = 7;
  std::vector<uint8_t> packed((codes.size() + 1) / 2, kZeroCode);
  for (size_t i = 0; i < codes.size(); ++i) {
    packed[i / 2] = static_cast<uint8_t>(i % 2 == 0 ? (codes[i] << 4) | kZeroCode
                                                    : (packed[i / 2] & 0xf0) | codes[i]);
  }
  return packed;
}

}  // namespace

absl::StatusOr<GoldenResult> CheckNf4(const GoldenFile& file) {
  absl::StatusOr<GoldenMatrix> weight = ReadMatrix(file, "weight");
  if (!weight.ok()) return weight.status();
  const int64_t size = weight->rows * weight->cols;
  int block = 0;
  double squared_error = 0;
  std::vector<uint8_t> codes;
  std::vector<uint8_t> packed;
  std::vector<float> absmax;
  std::vector<float> dequantized;
  absl::Status status;
  Get(file.Integer("block"), &block, &status);
  Get(file.Number("sum_squared_error"), &squared_error, &status);
  Get(file.Uint8s("codes", {weight->rows, weight->cols}), &codes, &status);
  Get(file.Uint8s("packed", {(size + 1) / 2}), &packed, &status);
  Get(file.Floats("absmax", {(size + kNf4Block - 1) / kNf4Block}), &absmax, &status);
  Get(file.Floats("dequantized", {weight->rows, weight->cols}), &dequantized, &status);
  if (status.ok() && block != kNf4Block) {
    status = absl::DataLossError(internal::StrCat("metadata 'block' is ", block));
  }
  if (!status.ok()) return status;

  ExecutionContext context;
  QuantizerSpec spec;
  spec.method = QuantizationMethod::kNf4;
  absl::StatusOr<QuantizedWeight> got = Quantize(weight->view(), nullptr, spec, context);
  if (!got.ok()) return got.status();

  GoldenResult result;
  CompareCodes(*got, {codes.begin(), codes.end()}, dequantized, 0, 0, &result);
  CompareEqual("absmax", got->scale, absmax, &result);
  CompareEqual("packed", PackNf4(got->codes), packed, &result);
  CompareEqual("dequantized", got->dequantized, dequantized, &result);
  const double sum = SumSquaredError(weight->values, got->dequantized);
  CompareNumber("sum_squared_error", sum, squared_error, kNf4SquaredErrorTolerance, &result);
  result.loss_error = RelativeError(sum, squared_error);
  return result;
}

}  // namespace ptqwatch::testing
