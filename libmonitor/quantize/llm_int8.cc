#include "ptqwatch/offline/llm_int8.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <new>
#include <utility>

#include "base/strings.h"
#include "quantize/kernels/gram.h"
#include "quantize/methods.h"
#include "quantize/scale_dtype.h"

namespace ptqwatch {
namespace {

using internal::StrCat;

constexpr float kTop = 127;

absl::Status CheckMatrix(std::string_view name, MatrixView m) {
  if (m.rows < 0 || m.cols < 0) {
    return absl::InvalidArgumentError(StrCat(name, " is [", m.rows, ", ", m.cols, "]"));
  }
  if (m.data == nullptr && m.rows > 0 && m.cols > 0) {
    return absl::InvalidArgumentError(StrCat(name, ".data is null"));
  }
  return absl::OkStatus();
}

void EncodeRow(const float* values, int64_t count, float absmax, int8_t* codes) {
  if (absmax == 0) {
    std::fill_n(codes, count, int8_t{0});
    return;
  }
  // Adding and taking away 1.5 * 2^23 rounds half to even what is smaller than 2^22, and unlike
  // nearbyint it is vectorised for every processor.
  constexpr float kRound = 12582912.0f;
  const auto code = [](float scaled) {
    const float rounded = (scaled + kRound) - kRound;
    return static_cast<int8_t>(std::min(std::max(rounded, -kTop), kTop));
  };
  const float steps = kTop / absmax;
  if (std::isfinite(steps)) {
    for (int64_t i = 0; i < count; ++i) codes[i] = code(values[i] * steps);
  } else {  // the smallest numbers have no finite reciprocal
    for (int64_t i = 0; i < count; ++i) codes[i] = code(values[i] / absmax * kTop);
  }
}

float LargestMagnitude(const float* values, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
  return largest;
}

// Rounded once: the product of code and absmax has more digits than float32 holds.
float Decode(int8_t code, float absmax) {
  return static_cast<float>(static_cast<double>(code) * static_cast<double>(absmax) / 127.0);
}

int64_t DotInt8(const int8_t* a, const int8_t* b, int64_t count) {
  constexpr int64_t kSafe = 1 << 16;  // 127^2 * kSafe < 2^31
  int64_t total = 0;
  for (int64_t begin = 0; begin < count; begin += kSafe) {
    int32_t sum = 0;
    for (int64_t i = begin; i < std::min(count, begin + kSafe); ++i) {
      sum += static_cast<int32_t>(a[i]) * static_cast<int32_t>(b[i]);
    }
    total += sum;
  }
  return total;
}

absl::StatusOr<Int8Rows> QuantizeOrThrow(MatrixView values, ScaleDtype absmax_dtype,
                                         const ExecutionContext& context) {
  if (absl::Status status = CheckMatrix("values", values); !status.ok()) return status;
  Int8Rows result;
  result.rows = values.rows;
  result.cols = values.cols;
  result.codes.resize(static_cast<size_t>(values.rows * values.cols));
  result.absmax.resize(static_cast<size_t>(values.rows));
  int64_t not_finite = -1;
  int64_t too_large = -1;
  absl::Status done = internal::ForEachRow(
      values.rows, values.cols,
      [&](int64_t r) {
        const float* row = values.data + r * values.cols;
        if (internal::AnyNonFinite(row, values.cols)) {
          not_finite = r;
          return;
        }
        const float absmax = internal::RoundScale(LargestMagnitude(row, values.cols), absmax_dtype);
        if (!std::isfinite(absmax)) {
          too_large = r;
          return;
        }
        result.absmax[static_cast<size_t>(r)] = absmax;
        EncodeRow(row, values.cols, absmax, result.codes.data() + r * values.cols);
      },
      context);
  if (!done.ok()) return done;
  if (not_finite >= 0) {
    return absl::InvalidArgumentError(StrCat("row ", not_finite, " holds a NaN or an infinity"));
  }
  if (too_large >= 0) {
    return absl::InvalidArgumentError(
        StrCat("the largest number of row ", too_large, " overflows ", ToString(absmax_dtype)));
  }
  return result;
}

// Finds the outliers, and quantizes what is left of the inputs.
absl::StatusOr<LlmInt8Product> SplitInputs(MatrixView inputs, double threshold,
                                           const ExecutionContext& context) {
  LlmInt8Product product;
  std::vector<bool> outlier(static_cast<size_t>(inputs.cols));
  std::vector<float> rest(inputs.data, inputs.data + inputs.rows * inputs.cols);
  if (threshold > 0) {
    absl::Status done = internal::ForEachRow(
        inputs.rows, inputs.cols,
        [&](int64_t t) {
          float* row = rest.data() + t * inputs.cols;
          for (int64_t c = 0; c < inputs.cols; ++c) {
            if (!(std::abs(static_cast<double>(row[c])) < threshold)) {
              outlier[static_cast<size_t>(c)] = true;
              if (std::isfinite(row[c])) row[c] = 0;
            }
          }
        },
        context);
    if (!done.ok()) return done;
  }
  absl::StatusOr<Int8Rows> codes =
      QuantizeOrThrow({.data = rest.data(), .rows = inputs.rows, .cols = inputs.cols},
                      ScaleDtype::kFloat32, context);
  if (!codes.ok()) {
    return absl::Status(codes.status().code(), StrCat("inputs: ", codes.status().message()));
  }
  product.inputs = *std::move(codes);
  for (int64_t c = 0; c < inputs.cols; ++c) {
    if (!outlier[static_cast<size_t>(c)]) continue;
    product.outlier_columns.push_back(c);
    for (int64_t t = 0; t < inputs.rows; ++t) {
      product.inputs.codes[static_cast<size_t>(t * inputs.cols + c)] = 0;
    }
  }
  return product;
}

absl::StatusOr<LlmInt8Product> MultiplyOrThrow(MatrixView inputs, MatrixView weight,
                                               double threshold, const ExecutionContext& context) {
  if (absl::Status status = CheckMatrix("inputs", inputs); !status.ok()) return status;
  if (absl::Status status = CheckMatrix("weight", weight); !status.ok()) return status;
  if (inputs.cols != weight.cols) {
    return absl::InvalidArgumentError(
        StrCat("inputs have ", inputs.cols, " columns, but the weight has ", weight.cols));
  }
  if (!std::isfinite(threshold) || threshold < 0) {
    return absl::InvalidArgumentError(StrCat("threshold is ", threshold));
  }
  absl::StatusOr<LlmInt8Product> product = SplitInputs(inputs, threshold, context);
  if (!product.ok()) return product.status();
  absl::StatusOr<Int8Rows> codes = QuantizeOrThrow(weight, ScaleDtype::kFloat32, context);
  if (!codes.ok()) {
    return absl::Status(codes.status().code(), StrCat("weight: ", codes.status().message()));
  }
  const int64_t d = inputs.cols;
  product->output.resize(static_cast<size_t>(inputs.rows * weight.rows));
  for (int64_t t = 0; t < inputs.rows; ++t) {
    const float* x = inputs.data + t * d;
    const double x_absmax = static_cast<double>(product->inputs.absmax[static_cast<size_t>(t)]);
    absl::Status done = internal::ForEachRow(
        weight.rows, d,
        [&](int64_t o) {
          const float* w = weight.data + o * d;
          double kept = 0;
          for (int64_t c : product->outlier_columns) {
            kept += static_cast<double>(x[c]) * static_cast<double>(w[c]);
          }
          const int64_t dot =
              DotInt8(product->inputs.codes.data() + t * d, codes->codes.data() + o * d, d);
          product->output[static_cast<size_t>(t * weight.rows + o)] =
              kept + static_cast<double>(dot) * x_absmax *
                         static_cast<double>(codes->absmax[static_cast<size_t>(o)]) /
                         (127.0 * 127.0);
        },
        context);
    if (!done.ok()) return done;
  }
  return product;
}

}  // namespace

absl::StatusOr<Int8Rows> QuantizeInt8Rows(MatrixView values, ScaleDtype absmax_dtype,
                                          const ExecutionContext& context) try {
  return QuantizeOrThrow(values, absmax_dtype, context);
} catch (const std::bad_alloc&) {
  return absl::ResourceExhaustedError(
      StrCat("no memory for the int8 codes of [", values.rows, ", ", values.cols, "]"));
}

absl::StatusOr<LlmInt8Product> MultiplyLlmInt8(MatrixView inputs, MatrixView weight,
                                               double threshold,
                                               const ExecutionContext& context) try {
  return MultiplyOrThrow(inputs, weight, threshold, context);
} catch (const std::bad_alloc&) {
  return absl::ResourceExhaustedError("no memory for an int8 product");
}

namespace internal {

absl::StatusOr<QuantizedWeight> LlmInt8(const Layer& layer, const ExecutionContext& context) {
  const MatrixView weight = layer.weight;
  const int64_t cols = weight.cols;
  absl::StatusOr<Int8Rows> rows = QuantizeOrThrow(weight, layer.spec.scale_dtype, context);
  // The weight is known to be finite.
  if (absl::IsInvalidArgument(rows.status())) return TooLargeForGrid(layer.spec);
  if (!rows.ok()) return rows.status();

  QuantizedWeight result;
  if (layer.spec.outlier_threshold > 0) {
    if (!layer.h) {
      result = WithStatus(LayerStatus::kTooFewTokens,
                          "0 tokens: outlier columns are not known, none was kept");
    }
    for (int64_t c = 0; layer.h && c < cols; ++c) {
      const float largest = layer.statistics->abs_max[static_cast<size_t>(c)];
      if (static_cast<double>(largest) >= layer.spec.outlier_threshold) {
        result.outlier_columns.push_back(c);
      }
    }
  }
  result.codes.resize(static_cast<size_t>(layer.size()));
  result.dequantized.resize(static_cast<size_t>(layer.size()));
  result.zero.assign(static_cast<size_t>(weight.rows), kTop + 1);
  result.scale = rows->absmax;
  for (float& scale : result.scale) scale /= kTop;
  absl::Status done = ForEachRow(
      weight.rows, cols,
      [&](int64_t r) {
        const int8_t* codes = rows->codes.data() + r * cols;
        uint8_t* stored = result.codes.data() + r * cols;
        float* decoded = result.dequantized.data() + r * cols;
        const float absmax = rows->absmax[static_cast<size_t>(r)];
        for (int64_t c = 0; c < cols; ++c) stored[c] = static_cast<uint8_t>(codes[c] + 128);
        if (cols < 256) {
          for (int64_t c = 0; c < cols; ++c) decoded[c] = Decode(codes[c], absmax);
        } else {
          std::array<float, 256> value;
          for (int code = -128; code < 128; ++code) {
            value[static_cast<size_t>(code + 128)] = Decode(static_cast<int8_t>(code), absmax);
          }
          for (int64_t c = 0; c < cols; ++c) decoded[c] = value[stored[c]];
        }
      },
      context);
  if (!done.ok()) return done;

  absl::StatusOr<std::optional<double>> loss = LayerLoss(layer, result.dequantized, context);
  if (!loss.ok()) return loss.status();
  result.loss = result.rtn_loss = *loss;
  if (!result.outlier_columns.empty()) {
    done = ForEachRow(
        weight.rows, cols,
        [&](int64_t r) {
          for (int64_t c : result.outlier_columns) {
            result.dequantized[static_cast<size_t>(r * cols + c)] = layer.Row(r)[c];
          }
        },
        context);
    if (!done.ok()) return done;
    loss = LayerLoss(layer, result.dequantized, context);
    if (!loss.ok()) return loss.status();
    result.loss = *loss;
  }
  if (done = AddOutputEnergy(layer, &result, context); !done.ok()) return done;
  return result;
}

}  // namespace internal
}  // namespace ptqwatch
