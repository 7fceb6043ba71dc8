#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/guard.h"
#include "base/reservation.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "ptqwatch/quantizer.h"
#include "quantize/kernels/non_finite.h"
#include "quantize/kernels/parallel.h"
#include "quantize/layer.h"
#include "quantize/methods.h"
#include "quantize/rotation.h"
#include "quantize/shared_results.h"

namespace ptqwatch {
namespace {

using internal::Layer;
using internal::Reservation;
using internal::Statistics;
using internal::StrCat;

// Checks that `values` has one number per input, or none if the method does not need it.
template <typename T>
absl::Status CheckMagnitudes(std::string_view name, const std::vector<T>& values, Statistics need,
                             int64_t inputs, const QuantizerSpec& spec) {
  const bool needed = internal::StatisticsOf(spec) == need;
  if (values.empty() && !needed) return absl::OkStatus();
  if (static_cast<int64_t>(values.size()) != inputs) {
    return absl::InvalidArgumentError(
        StrCat("statistics.", name, " has ", values.size(), " numbers for ", inputs, " inputs",
               needed ? StrCat(", and ", ToString(spec.method), " needs it") : ""));
  }
  const auto negative = std::find_if(values.begin(), values.end(), [](T v) { return v < 0; });
  if (negative != values.end()) {
    return absl::InvalidArgumentError(
        StrCat("statistics.", name, "[", negative - values.begin(), "] is ", *negative));
  }
  return absl::OkStatus();
}

absl::Status CheckShapes(MatrixView weight, const GramStatistics* statistics,
                         const QuantizerSpec& spec) {
  if (weight.rows < 0 || weight.cols < 0) {
    return absl::InvalidArgumentError(
        StrCat("the weight's shape is [", weight.rows, ", ", weight.cols, "]"));
  }
  if (weight.data == nullptr && weight.rows > 0 && weight.cols > 0) {
    return absl::InvalidArgumentError("weight.data is null");
  }
  if (statistics == nullptr) {
    if (!NeedsStatistics(spec)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        StrCat(ToString(spec.method), " needs statistics of the layer's inputs, but has none"));
  }
  if (statistics->inputs != weight.cols) {
    return absl::InvalidArgumentError(StrCat("statistics.inputs is ", statistics->inputs,
                                             ", but the weight has ", weight.cols, " columns"));
  }
  if (static_cast<int64_t>(statistics->sum.size()) != weight.cols * weight.cols) {
    return absl::InvalidArgumentError(StrCat("statistics.sum has ", statistics->sum.size(),
                                             " numbers; ", weight.cols, " inputs need ",
                                             weight.cols * weight.cols));
  }
  if (statistics->tokens < 0) {
    return absl::InvalidArgumentError(StrCat("statistics.tokens is ", statistics->tokens));
  }
  PTQWATCH_RETURN_IF_ERROR(CheckMagnitudes("abs_sum", statistics->abs_sum,
                                           Statistics::kGramAndAbsSum, weight.cols, spec));
  return CheckMagnitudes("abs_max", statistics->abs_max, Statistics::kGramAndAbsMax, weight.cols,
                         spec);
}

// Names the first number of the weight or H that is not finite; empty if there is none.
absl::StatusOr<std::string> FindNonFinite(MatrixView weight, const GramStatistics* statistics,
                                          const ExecutionContext& context) {
  std::string found;
  PTQWATCH_RETURN_IF_ERROR(internal::ForEachRow(
      weight.rows, weight.cols,
      [&](int64_t r) {
        const float* row = weight.data + r * weight.cols;
        if (!found.empty() || !internal::AnyNonFinite(row, weight.cols)) return;
        const auto bad =
            std::find_if(row, row + weight.cols, [](float w) { return !std::isfinite(w); });
        found = StrCat("weight[", r, ", ", bad - row, "] is ", *bad);
      },
      context));
  if (!found.empty() || statistics == nullptr) return found;
  PTQWATCH_RETURN_IF_ERROR(internal::ForEachRow(
      weight.cols, weight.cols,
      [&](int64_t i) {
        if (!found.empty()) return;
        const double* row = statistics->sum.data() + i * weight.cols;
        // 0 * x is NaN if x is not finite, and a sum keeps it.
        double sum = 0;
        for (int64_t j = i; j < weight.cols; ++j) sum += 0 * row[j];
        if (std::isnan(sum)) {
          found = StrCat("row ", i, " of the inputs' second moments is not finite");
        }
      },
      context));
  return found;
}

// Like FindNonFinite, for the other statistics of the method: "abs_sum[3] of the inputs is nan".
std::string FindNonFiniteMagnitude(const GramStatistics* statistics, const QuantizerSpec& spec) {
  const auto find = [](std::string_view name, const auto& values) -> std::string {
    const auto bad =
        std::find_if(values.begin(), values.end(), [](auto v) { return !std::isfinite(v); });
    if (bad == values.end()) return "";
    return StrCat(name, "[", bad - values.begin(), "] of the inputs is ", *bad);
  };
  const Statistics need = internal::StatisticsOf(spec);
  if (statistics == nullptr) return "";
  if (need == Statistics::kGramAndAbsSum) return find("abs_sum", statistics->abs_sum);
  return need == Statistics::kGramAndAbsMax ? find("abs_max", statistics->abs_max) : "";
}

absl::StatusOr<QuantizedWeight> RunMethod(const Layer& layer, const ExecutionContext& context) {
  const internal::Method& method = internal::MethodOf(layer.spec);
  const int64_t tokens = layer.statistics == nullptr ? 0 : layer.statistics->tokens;
  const double needed = internal::NeededTokens(layer.spec, layer.weight.cols);
  if (static_cast<double>(tokens) >= needed) return method.quantize(layer, context);
  return internal::RoundToNearest(layer, LayerStatus::kTooFewTokens,
                                  StrCat(tokens, " tokens for ", layer.weight.cols, " inputs; ",
                                         ToString(layer.spec.method), " needs ", std::ceil(needed)),
                                  context);
}

// Quantizes W B with H' = B H B, and rotates the result back: the loss stays the same.
absl::StatusOr<QuantizedWeight> RunRotated(const Layer& layer, const ExecutionContext& context) {
  const int64_t rows = layer.weight.rows;
  const int64_t cols = layer.weight.cols;
  const int64_t block = layer.spec.rotation;
  std::vector<float> weight(layer.weight.data, layer.weight.data + layer.size());
  PTQWATCH_RETURN_IF_ERROR(internal::RotateColumns(rows, cols, block, weight.data(), context));
  std::vector<double> sum;
  internal::SharedResults shared;
  Layer rotated = layer;
  rotated.weight.data = weight.data();
  rotated.shared = &shared;
  if (layer.h) {
    sum.assign(layer.h->sum, layer.h->sum + cols * cols);
    PTQWATCH_RETURN_IF_ERROR(internal::RotateGram(cols, block, sum.data(), context));
    rotated.h->sum = sum.data();
  }
  PTQWATCH_ASSIGN_OR_RETURN(QuantizedWeight result, RunMethod(rotated, context));
  if (!result.dequantized.empty()) {
    PTQWATCH_RETURN_IF_ERROR(
        internal::RotateColumns(rows, cols, block, result.dequantized.data(), context));
  }
  return result;
}

// If the reservation fails, drops the cached factor and tries again.
absl::Status ReserveWorkingBytes(MatrixView weight, const QuantizerSpec& spec,
                                 internal::SharedResults& shared, Reservation& reservation) {
  // Excludes the factor, which is reserved when it is computed and may exist already.
  const int64_t bytes = internal::WorkingBytes(weight.rows, weight.cols, spec) -
                        internal::FactorBytes(weight.cols, spec);
  absl::Status status = reservation.Take(bytes, "quantizing a weight");
  if (absl::IsResourceExhausted(status) && shared.DropFeedback()) {
    status = reservation.Take(bytes, "quantizing a weight");
  }
  return status;
}

absl::StatusOr<QuantizedWeight> QuantizeOrThrow(MatrixView weight, const GramStatistics* statistics,
                                                const QuantizerSpec& spec,
                                                internal::SharedResults& shared,
                                                const ExecutionContext& context) {
  PTQWATCH_RETURN_IF_ERROR(Validate(spec));
  PTQWATCH_RETURN_IF_ERROR(internal::CheckThreads(context));
  PTQWATCH_RETURN_IF_ERROR(CheckShapes(weight, statistics, spec));
  if (weight.rows == 0 || weight.cols == 0) {
    return internal::WithStatus(
        LayerStatus::kUnsupported,
        StrCat("the weight is empty: [", weight.rows, ", ", weight.cols, "]"));
  }
  PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
  Reservation reservation(context.bytes);
  PTQWATCH_RETURN_IF_ERROR(ReserveWorkingBytes(weight, spec, shared, reservation));
  const auto find = [&] {
    return shared.NonFinite([&] { return FindNonFinite(weight, statistics, context); });
  };
  const bool find_later = internal::MethodOf(spec).finds_non_finite && statistics == nullptr &&
                          spec.clip == ClipSearch::kNone && spec.rotation == 0;
  if (!find_later) {
    PTQWATCH_ASSIGN_OR_RETURN(std::string bad, find());
    if (bad.empty()) bad = FindNonFiniteMagnitude(statistics, spec);
    if (!bad.empty()) return internal::WithStatus(LayerStatus::kNonFinite, std::move(bad));
  }

  Layer layer{.weight = weight,
              .statistics = statistics,
              .h = std::nullopt,
              .spec = spec,
              .shared = &shared};
  if (statistics != nullptr && statistics->tokens > 0) {
    layer.h = {.sum = statistics->sum.data(),
               .scale = 2.0 / static_cast<double>(statistics->tokens),
               .size = weight.cols};
  }
  const bool rotate = spec.rotation > 0 && internal::MethodOf(spec).formats;
  PTQWATCH_ASSIGN_OR_RETURN(QuantizedWeight result,
                            rotate ? RunRotated(layer, context) : RunMethod(layer, context));
  if (find_later && result.status == LayerStatus::kUnsupported) {
    PTQWATCH_ASSIGN_OR_RETURN(std::string bad, find());
    if (!bad.empty()) return internal::WithStatus(LayerStatus::kNonFinite, std::move(bad));
  }
  PTQWATCH_RETURN_IF_ERROR(internal::CountColumns(layer, &result, context));
  if (statistics != nullptr && statistics->skipped_rows > 0) {
    result.status_detail +=
        StrCat(result.status_detail.empty() ? "" : "; ", statistics->skipped_rows, " of ",
               statistics->tokens + statistics->skipped_rows,
               " calibration rows were not finite and left out");
  }
  return result;
}

}  // namespace

struct LayerQuantizer::Shared {
  internal::SharedResults results;
};

LayerQuantizer::LayerQuantizer(MatrixView weight, const GramStatistics* statistics) noexcept
    : weight_(weight), statistics_(statistics) {}
LayerQuantizer::LayerQuantizer(LayerQuantizer&&) noexcept = default;
LayerQuantizer& LayerQuantizer::operator=(LayerQuantizer&&) noexcept = default;
LayerQuantizer::~LayerQuantizer() = default;

absl::StatusOr<QuantizedWeight> LayerQuantizer::Quantize(const QuantizerSpec& spec,
                                                         const ExecutionContext& context) {
  return internal::Guard("quantizing a weight", absl::StatusCode::kInternal, [&] {
    if (shared_ == nullptr) shared_ = std::make_unique<Shared>();
    return QuantizeOrThrow(weight_, statistics_, spec, shared_->results, context);
  });
}

absl::StatusOr<QuantizedWeight> Quantize(MatrixView weight, const GramStatistics* statistics,
                                         const QuantizerSpec& spec,
                                         const ExecutionContext& context) {
  return LayerQuantizer(weight, statistics).Quantize(spec, context);
}

}  // namespace ptqwatch
