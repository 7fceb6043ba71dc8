#include "quantize/llm_int8.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/huge_pages.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "quantize/kernels/grid.h"
#include "quantize/kernels/int8_row.h"
#include "quantize/kernels/scale_dtype.h"
#include "quantize/methods.h"

namespace ptqwatch::internal {
namespace {

constexpr float kTop = 127;

// Starts the result with the columns to keep, or with a status if they are unknown.
QuantizedWeight FindOutliers(const Layer& layer) {
  QuantizedWeight result;
  if (layer.spec.outlier_threshold == 0) return result;
  if (!layer.h) {
    return WithStatus(LayerStatus::kTooFewTokens,
                      "0 tokens: outlier columns are unknown, so none is kept");
  }
  for (int64_t c = 0; c < layer.weight.cols; ++c) {
    const float largest = layer.statistics->abs_max[static_cast<size_t>(c)];
    if (static_cast<double>(largest) >= layer.spec.outlier_threshold) {
      result.outlier_columns.push_back(c);
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<Int8Rows> QuantizeInt8Rows(MatrixView values, ScaleDtype absmax_dtype,
                                          const ExecutionContext& context) {
  Int8Rows result;
  // Rows are appended: memory that is resized first would be written twice.
  std::vector<uint8_t> codes(static_cast<size_t>(values.cols));
  std::vector<float> decoded(static_cast<size_t>(values.cols));
  ReserveHuge(static_cast<size_t>(values.rows * values.cols), &result.codes);
  ReserveHuge(static_cast<size_t>(values.rows * values.cols), &result.dequantized);
  result.absmax.reserve(static_cast<size_t>(values.rows));
  int64_t not_finite = -1;
  int64_t too_large = -1;
  PTQWATCH_RETURN_IF_ERROR(ForEachRow(
      values.rows, values.cols,
      [&](int64_t r) {
        const float* row = values.data + r * values.cols;
        const float largest = LargestOf(row, values.cols);
        const float absmax = RoundScale(largest, absmax_dtype);
        if (!std::isfinite(absmax)) {
          (std::isfinite(largest) ? too_large : not_finite) = r;
          return;
        }
        QuantizeInt8Row(row, values.cols, absmax, codes.data(), decoded.data());
        result.codes.insert(result.codes.end(), codes.begin(), codes.end());
        result.dequantized.insert(result.dequantized.end(), decoded.begin(), decoded.end());
        result.absmax.push_back(absmax);
      },
      context));
  if (not_finite >= 0) {
    return absl::InvalidArgumentError(StrCat("row ", not_finite, " holds a NaN or an infinity"));
  }
  if (too_large >= 0) {
    return absl::InvalidArgumentError(
        StrCat("the largest number of row ", too_large, " overflows ", ToString(absmax_dtype)));
  }
  return result;
}

namespace {

absl::StatusOr<QuantizedWeight> LlmInt8(const Layer& layer, const ExecutionContext& context) {
  const MatrixView weight = layer.weight;
  const int64_t cols = weight.cols;
  absl::StatusOr<Int8Rows> rows = QuantizeInt8Rows(weight, layer.spec.scale_dtype, context);
  // Quantize gives a weight that is not finite its own status.
  if (absl::IsInvalidArgument(rows.status())) return TooLargeForGrid(layer.spec);
  PTQWATCH_RETURN_IF_ERROR(rows.status());

  QuantizedWeight result = FindOutliers(layer);
  result.codes = std::move(rows->codes);
  result.dequantized = std::move(rows->dequantized);
  result.zero.assign(static_cast<size_t>(weight.rows), kTop + 1);
  result.scale = std::move(rows->absmax);
  for (float& scale : result.scale) scale /= kTop;

  PTQWATCH_ASSIGN_OR_RETURN(result.loss, LayerLoss(layer, result.dequantized, context));
  result.rtn_loss = result.loss;
  if (!result.outlier_columns.empty()) {
    PTQWATCH_RETURN_IF_ERROR(ForEachRow(
        weight.rows, cols,
        [&](int64_t r) {
          for (int64_t c : result.outlier_columns) {
            result.dequantized[static_cast<size_t>(r * cols + c)] = layer.Row(r)[c];
          }
        },
        context));
    PTQWATCH_ASSIGN_OR_RETURN(result.loss, LayerLoss(layer, result.dequantized, context));
  }
  PTQWATCH_RETURN_IF_ERROR(AddOutputEnergy(layer, &result, context));
  return result;
}

}  // namespace

const Method kLlmInt8Method = {
    .bits = 8,
    .outliers = true,
    .group_size = -1,
    .finds_non_finite = true,
    .statistics =
        [](const QuantizerSpec& spec) {
          return spec.outlier_threshold > 0 ? Statistics::kGramAndAbsMax : Statistics::kNone;
        },
    .bytes = [](int64_t rows, int64_t cols, const QuantizerSpec&) { return rows * cols; },
    .quantize = LlmInt8,
};

}  // namespace ptqwatch::internal
