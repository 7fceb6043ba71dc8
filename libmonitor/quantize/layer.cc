#include "quantize/layer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/huge_pages.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "quantize/kernels/gram.h"

namespace ptqwatch::internal {

QuantizedWeight WithStatus(LayerStatus status, std::string detail) {
  QuantizedWeight result;
  result.status = status;
  result.status_detail = std::move(detail);
  return result;
}

QuantizedWeight TooLargeForGrid(const QuantizerSpec& spec) {
  return WithStatus(LayerStatus::kUnsupported, StrCat("a weight is too large for a grid with ",
                                                      ToString(spec.scale_dtype), " scales"));
}

void ReserveWeights(const Layer& layer, QuantizedWeight* result) {
  ReserveHuge(static_cast<size_t>(layer.size()), &result->codes);
  ReserveHuge(static_cast<size_t>(layer.size()), &result->dequantized);
}

absl::Status ForEachRow(int64_t rows, int64_t cols, absl::FunctionRef<void(int64_t row)> work,
                        const ExecutionContext& context) {
  const int64_t step = std::max<int64_t>(1, (1 << 16) / std::max<int64_t>(1, cols));
  for (int64_t r = 0; r < rows; ++r) {
    work(r);
    if (r % step == 0) PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<double>> ErrorTrace(int64_t rows, int64_t cols, const Hessian& h,
                                                 ErrorRow error, const ExecutionContext& context) {
  const auto source = [&](int64_t r, float* scratch) -> const float* {
    error(r, scratch);
    return scratch;
  };
  PTQWATCH_ASSIGN_OR_RETURN(const double trace,
                            QuadraticTrace(rows, cols, SharedRowSource(source), h.sum, context));
  // H is positive semidefinite, so a negative value is a rounding error.
  const double value = h.scale * trace;
  return std::isfinite(value) ? std::optional<double>(std::max(0.0, value)) : std::nullopt;
}

absl::StatusOr<std::optional<double>> LayerLoss(const Layer& layer,
                                                const std::vector<float>& decoded,
                                                const ExecutionContext& context) {
  if (!layer.h) return std::optional<double>();
  const int64_t cols = layer.weight.cols;
  return ErrorTrace(
      layer.weight.rows, cols, *layer.h,
      [&](int64_t r, float* out) {
        const float* w = layer.Row(r);
        const float* q = decoded.data() + r * cols;
        for (int64_t c = 0; c < cols; ++c) out[c] = w[c] - q[c];
      },
      context);
}

absl::Status AddOutputEnergy(const Layer& layer, QuantizedWeight* result,
                             const ExecutionContext& context) {
  if (!layer.h) return absl::OkStatus();
  const auto compute = [&] {
    return ErrorTrace(
        layer.weight.rows, layer.weight.cols, *layer.h,
        [&](int64_t r, float* out) { std::copy_n(layer.Row(r), layer.weight.cols, out); }, context);
  };
  PTQWATCH_ASSIGN_OR_RETURN(result->output_energy, layer.shared->OutputEnergy(compute));
  return absl::OkStatus();
}

namespace {

absl::StatusOr<SharedResults::Columns> CountInputs(const Hessian& h,
                                                   const ExecutionContext& context) {
  const int64_t d = h.size;
  const double* sum = h.sum;
  std::vector<std::pair<double, int64_t>> live;
  for (int64_t c = 0; c < d; ++c) {
    if (sum[c * d + c] != 0) live.emplace_back(sum[c * d + c], c);
  }
  std::sort(live.begin(), live.end());
  // x_i = x_j in every row exactly when |x_i|^2 = |x_j|^2 = x_i . x_j.
  int64_t duplicates = 0;
  std::vector<int64_t> distinct;  // among columns of the current norm
  int64_t comparisons = 0;
  for (size_t k = 0; k < live.size(); ++k) {
    const double norm = live[k].first;
    const int64_t c = live[k].second;
    if (k == 0 || norm != live[k - 1].first) distinct.clear();
    const double* row = sum + c * d;
    if (std::any_of(distinct.begin(), distinct.end(), [&](int64_t i) { return row[i] == norm; })) {
      ++duplicates;
    } else {
      distinct.push_back(c);
    }
    comparisons += static_cast<int64_t>(distinct.size());
    if (comparisons >= 1 << 16) {
      comparisons = 0;
      PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
    }
  }
  return SharedResults::Columns{.dead = d - static_cast<int64_t>(live.size()),
                                .duplicate = duplicates};
}

}  // namespace

absl::Status CountColumns(const Layer& layer, QuantizedWeight* result,
                          const ExecutionContext& context) {
  if (!layer.h) return absl::OkStatus();
  PTQWATCH_ASSIGN_OR_RETURN(const SharedResults::Columns columns, layer.shared->ColumnCounts([&] {
    return CountInputs(*layer.h, context);
  }));
  result->dead_columns = columns.dead;
  result->duplicate_columns = columns.duplicate;
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
