#include "quantize/llm_int8.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/status_macros.h"
#include "base/strings.h"
#include "quantize/kernels/non_finite.h"
#include "quantize/kernels/scale_dtype.h"
#include "quantize/methods.h"

namespace ptqwatch::internal {
namespace {

constexpr float kTop = 127;

void EncodeRow(const float* values, int64_t count, float absmax, int8_t* codes) {
  if (absmax == 0) {
    std::fill_n(codes, count, int8_t{0});
    return;
  }
  // Adding and subtracting 1.5 * 2^23 rounds numbers below 2^22 half to even. Unlike nearbyint, it
  // is vectorised on every processor.
  constexpr float kRound = 12582912.0f;
  const auto code = [](float scaled) {
    const float rounded = (scaled + kRound) - kRound;
    return static_cast<int8_t>(std::min(std::max(rounded, -kTop), kTop));
  };
  const float steps = kTop / absmax;
  if (std::isfinite(steps)) {
    for (int64_t i = 0; i < count; ++i) codes[i] = code(values[i] * steps);
  } else {  // tiny numbers have no finite reciprocal
    for (int64_t i = 0; i < count; ++i) codes[i] = code(values[i] / absmax * kTop);
  }
}

float LargestMagnitude(const float* values, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
  return largest;
}

// Rounds only once, because the product of code and absmax has more digits than float32.
float Decode(int8_t code, float absmax) {
  return static_cast<float>(static_cast<double>(code) * static_cast<double>(absmax) / 127.0);
}

// Writes codes + 128 and the decoded values of one row.
void DecodeInt8Row(const int8_t* codes, int64_t cols, float absmax, uint8_t* stored,
                   float* decoded) {
  for (int64_t c = 0; c < cols; ++c) stored[c] = static_cast<uint8_t>(codes[c] + 128);
  if (cols < 256) {
    for (int64_t c = 0; c < cols; ++c) decoded[c] = Decode(codes[c], absmax);
    return;
  }
  std::array<float, 256> value;
  for (int code = -128; code < 128; ++code) {
    value[static_cast<size_t>(code + 128)] = Decode(static_cast<int8_t>(code), absmax);
  }
  for (int64_t c = 0; c < cols; ++c) decoded[c] = value[stored[c]];
}

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
  result.codes.resize(static_cast<size_t>(values.rows * values.cols));
  result.absmax.resize(static_cast<size_t>(values.rows));
  int64_t not_finite = -1;
  int64_t too_large = -1;
  PTQWATCH_RETURN_IF_ERROR(ForEachRow(
      values.rows, values.cols,
      [&](int64_t r) {
        const float* row = values.data + r * values.cols;
        if (AnyNonFinite(row, values.cols)) {
          not_finite = r;
          return;
        }
        const float absmax = RoundScale(LargestMagnitude(row, values.cols), absmax_dtype);
        if (!std::isfinite(absmax)) {
          too_large = r;
          return;
        }
        result.absmax[static_cast<size_t>(r)] = absmax;
        EncodeRow(row, values.cols, absmax, result.codes.data() + r * values.cols);
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
  const absl::StatusOr<Int8Rows> rows = QuantizeInt8Rows(weight, layer.spec.scale_dtype, context);
  // The weight is finite, so only an overflowing absmax is left.
  if (absl::IsInvalidArgument(rows.status())) return TooLargeForGrid(layer.spec);
  PTQWATCH_RETURN_IF_ERROR(rows.status());

  QuantizedWeight result = FindOutliers(layer);
  result.codes.resize(static_cast<size_t>(layer.size()));
  result.dequantized.resize(static_cast<size_t>(layer.size()));
  result.zero.assign(static_cast<size_t>(weight.rows), kTop + 1);
  result.scale = rows->absmax;
  for (float& scale : result.scale) scale /= kTop;
  PTQWATCH_RETURN_IF_ERROR(ForEachRow(
      weight.rows, cols,
      [&](int64_t r) {
        DecodeInt8Row(rows->codes.data() + r * cols, cols, rows->absmax[static_cast<size_t>(r)],
                      result.codes.data() + r * cols, result.dequantized.data() + r * cols);
      },
      context));

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
    .statistics =
        [](const QuantizerSpec& spec) {
          return spec.outlier_threshold > 0 ? Statistics::kGramAndAbsMax : Statistics::kNone;
        },
    .bytes = [](int64_t rows, int64_t cols, const QuantizerSpec&) { return rows * cols; },
    .quantize = LlmInt8,
};

}  // namespace ptqwatch::internal
