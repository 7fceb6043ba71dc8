#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "base/reservation.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "quantize/kernels/cholesky.h"
#include "quantize/kernels/feedback_matrix.h"
#include "quantize/kernels/gptq_loop.h"
#include "quantize/layer.h"
#include "quantize/methods.h"

namespace ptqwatch::internal {
namespace {

// Copies the weight with the columns of dead inputs set to zero; empty if no input is dead.
absl::StatusOr<std::vector<float>> ZeroDeadColumns(const Layer& layer,
                                                   const std::vector<double>& diagonal,
                                                   const ExecutionContext& context) {
  std::vector<int64_t> dead;
  for (size_t c = 0; c < diagonal.size(); ++c) {
    if (diagonal[c] == 0) dead.push_back(static_cast<int64_t>(c));
  }
  std::vector<float> copy;
  if (dead.empty()) return copy;
  const int64_t cols = layer.weight.cols;
  copy.resize(static_cast<size_t>(layer.size()));
  PTQWATCH_RETURN_IF_ERROR(ForEachRow(
      layer.weight.rows, cols,
      [&](int64_t r) {
        float* row = copy.data() + r * cols;
        std::copy_n(layer.Row(r), cols, row);
        for (int64_t c : dead) row[c] = 0;
      },
      context));
  return copy;
}

std::vector<int64_t> ProcessingOrder(const std::vector<double>& diagonal, QuantizationOrder order) {
  std::vector<int64_t> columns(diagonal.size());
  std::iota(columns.begin(), columns.end(), int64_t{0});
  if (order == QuantizationOrder::kStaticAct) {
    std::stable_sort(columns.begin(), columns.end(), [&](int64_t a, int64_t b) {
      return diagonal[static_cast<size_t>(a)] > diagonal[static_cast<size_t>(b)];
    });
  }
  return columns;
}

double MeanOfLive(const std::vector<double>& diagonal) {
  double sum = 0;
  int64_t live = 0;
  for (double value : diagonal) {
    sum += value;
    live += value != 0;
  }
  return live > 0 ? sum / static_cast<double>(live) : 0;
}

struct GptqRun {
  GptqErrors errors;
  double damp = 0;
  double damp_value = 0;
};

// Factorises H with `damp_value` added to its diagonal.
absl::StatusOr<FeedbackMatrix> FactorizeDamped(const Hessian& h,
                                               const std::vector<double>& diagonal,
                                               double damp_value, QuantizationOrder order,
                                               const ExecutionContext& context) {
  Reservation bytes(context.bytes);
  PTQWATCH_RETURN_IF_ERROR(bytes.Take(4 * h.size * h.size, "factorising a layer's inputs"));
  std::vector<double> damped(diagonal);
  for (double& value : damped) value = (value == 0 ? 1 : value) + damp_value;
  std::vector<int64_t> columns = ProcessingOrder(diagonal, order);
  PTQWATCH_ASSIGN_OR_RETURN(const UpperFactor factor, FactorizeUpper({.values = h.sum,
                                                                      .size = h.size,
                                                                      .order = columns.data(),
                                                                      .scale = h.scale,
                                                                      .diagonal = damped.data()},
                                                                     context));
  return FeedbackMatrix::Pack(factor, std::move(columns), context);
}

// Factorises H and runs the loop, which fills the codes and order of `result`. Each failure
// multiplies the damping by ten, up to 1. NotFound if that does not help.
absl::StatusOr<GptqRun> RunWithDampRetry(const Layer& layer, MatrixView live, const Grid& grid,
                                         const std::vector<double>& diagonal,
                                         QuantizedWeight* result, const ExecutionContext& context) {
  // Minimum for the first retry, as ten times a tiny damping is still tiny.
  constexpr double kMinRetryDamp = 1e-4;
  const QuantizerSpec& spec = layer.spec;
  const double mean = MeanOfLive(diagonal);
  for (double damp = spec.damp;; damp = std::clamp(10 * damp, kMinRetryDamp, 1.0)) {
    const double damp_value = damp * mean;
    const auto factorize = [&] {
      return FactorizeDamped(*layer.h, diagonal, damp_value, spec.order, context);
    };
    const absl::StatusOr<const FeedbackMatrix*> feedback =
        layer.shared->Feedback(spec.order, damp, layer.h->size, factorize, context);
    if (feedback.ok()) {
      PTQWATCH_ASSIGN_OR_RETURN(const GptqErrors errors,
                                RunGptq(live, grid, **feedback, result->codes.data(), context));
      if (std::isfinite(errors.damped_loss) && std::isfinite(errors.squared_norm)) {
        result->order = (*feedback)->order();
        return GptqRun{.errors = errors, .damp = damp, .damp_value = damp_value};
      }
    } else if (!absl::IsFailedPrecondition(feedback.status())) {
      return feedback.status();
    }
    if (damp >= 1) {
      return absl::NotFoundError(
          StrCat("H could not be factorised with damp ", spec.damp, " or any up to ", damp));
    }
  }
}

absl::Status AddErrorParts(MatrixView weight, const Grid& grid, QuantizedWeight* result,
                           const ExecutionContext& context) {
  std::vector<float> rounded(static_cast<size_t>(weight.cols));
  ErrorSums sums;
  PTQWATCH_RETURN_IF_ERROR(ForEachRow(
      weight.rows, weight.cols,
      [&](int64_t r) {
        const float* w = weight.data + r * weight.cols;
        RoundRow(grid, r, w, nullptr, rounded.data());
        AddErrors(grid, r, w, rounded.data(), &sums);
      },
      context));
  SetErrorParts(sums, result);
  return absl::OkStatus();
}

absl::Status AddRtnLoss(const Layer& layer, MatrixView live, const Grid& grid,
                        QuantizedWeight* result, const ExecutionContext& context) {
  const auto compute = [&] {
    return ErrorTrace(
        live.rows, live.cols, *layer.h,
        [&](int64_t r, float* out) {
          const float* w = live.data + r * live.cols;
          RoundRow(grid, r, w, nullptr, out);
          for (int64_t c = 0; c < live.cols; ++c) out[c] = w[c] - out[c];
        },
        context);
  };
  PTQWATCH_ASSIGN_OR_RETURN(
      result->rtn_loss, layer.shared->RtnLoss(layer.spec, live.data != layer.weight.data, compute));
  return absl::OkStatus();
}

absl::Status AddLosses(const Layer& layer, const GptqRun& run, QuantizedWeight* result,
                       const ExecutionContext& context) {
  const double damped = run.errors.damped_loss;
  const double undamped = damped - run.damp_value * run.errors.squared_norm;
  result->loss_damped = damped;
  // The difference costs nothing, but loses digits if damping is most of the loss, or if so few
  // weights are summed that the float32 errors do not average out.
  constexpr double kMinShare = 0.05;
  constexpr int64_t kMinWeights = 1 << 16;
  if (undamped > kMinShare * damped && layer.size() >= kMinWeights) {
    result->loss = undamped;
    return absl::OkStatus();
  }
  PTQWATCH_ASSIGN_OR_RETURN(result->loss, LayerLoss(layer, result->dequantized, context));
  return absl::OkStatus();
}

// Falls back to RTN if H cannot be factorised at any damping up to 1.
absl::StatusOr<QuantizedWeight> Gptq(const Layer& layer, const ExecutionContext& context) {
  const Hessian& h = *layer.h;
  const MatrixView weight = layer.weight;
  const QuantizerSpec& spec = layer.spec;
  std::vector<double> diagonal(static_cast<size_t>(h.size));
  for (int64_t i = 0; i < h.size; ++i) diagonal[static_cast<size_t>(i)] = h.Diagonal(i);
  PTQWATCH_ASSIGN_OR_RETURN(const std::vector<float> zeroed,
                            ZeroDeadColumns(layer, diagonal, context));
  MatrixView live = weight;
  if (!zeroed.empty()) live.data = zeroed.data();

  QuantizedWeight result;
  Grid grid = EmptyGrid(weight.rows, weight.cols, spec);
  PTQWATCH_ASSIGN_OR_RETURN(const bool fits,
                            FitGrid(layer, live, &grid, &result.clipped_groups, context));
  if (!fits) return TooLargeForGrid(spec);

  ReserveWeights(layer, &result);
  result.codes.resize(static_cast<size_t>(layer.size()));
  result.dequantized.resize(static_cast<size_t>(layer.size()));
  const absl::StatusOr<GptqRun> run =
      RunWithDampRetry(layer, live, grid, diagonal, &result, context);
  if (absl::IsNotFound(run.status())) {
    return RoundToNearest(layer, LayerStatus::kRtnFallback, StrCat(run.status()), context);
  }
  PTQWATCH_RETURN_IF_ERROR(run.status());
  if (run->damp != spec.damp) {
    result.status = LayerStatus::kDamped;
    result.status_detail = StrCat("damp ", run->damp, " instead of ", spec.damp);
  }
  result.damp = run->damp;
  result.damp_value = run->damp_value;

  PTQWATCH_RETURN_IF_ERROR(ForEachRow(
      weight.rows, weight.cols,
      [&](int64_t r) {
        const int64_t begin = r * weight.cols;
        DecodeRow(grid, r, result.codes.data() + begin, result.dequantized.data() + begin);
      },
      context));
  PTQWATCH_RETURN_IF_ERROR(AddLosses(layer, *run, &result, context));
  if (HasErrorParts(grid, spec)) {
    PTQWATCH_RETURN_IF_ERROR(AddErrorParts(live, grid, &result, context));
  }
  if (spec.baselines) {
    PTQWATCH_RETURN_IF_ERROR(AddRtnLoss(layer, live, grid, &result, context));
    PTQWATCH_RETURN_IF_ERROR(AddOutputEnergy(layer, &result, context));
  }
  result.scale = std::move(grid.scale);
  result.zero = std::move(grid.zero);
  result.tensor_scale = grid.tensor_scale;
  return result;
}

}  // namespace

const Method kGptqMethod = {
    .grid = true,
    .formats = true,
    .factor = true,
    .statistics = [](const QuantizerSpec&) { return Statistics::kGram; },
    .min_tokens =
        [](const QuantizerSpec& spec, int64_t inputs) {
          return spec.min_tokens_ratio * static_cast<double>(inputs);
        },
    .bytes =
        [](int64_t rows, int64_t cols, const QuantizerSpec& spec) {
          return GridBytes(rows, cols, spec) + 4 * rows * cols;
        },
    .flops =
        [](double rows, double cols, const QuantizerSpec& spec) {
          return cols * cols * (cols / 3 + rows) + BaselineFlops(rows, cols, spec);
        },
    .quantize = Gptq,
};

}  // namespace ptqwatch::internal
