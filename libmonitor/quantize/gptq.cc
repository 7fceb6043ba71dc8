#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "quantize/kernels/cholesky.h"
#include "quantize/kernels/gptq_loop.h"
#include "quantize/methods.h"

namespace ptqwatch::internal {
namespace {

// The weight with the columns of inputs that were always zero set to zero; empty when there are
// none.
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
  absl::Status status = ForEachRow(
      layer.weight.rows, cols,
      [&](int64_t r) {
        float* row = copy.data() + r * cols;
        std::copy_n(layer.Row(r), cols, row);
        for (int64_t c : dead) row[c] = 0;
      },
      context);
  if (!status.ok()) return status;
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

// Factorises and quantizes, with ten times the damping after each failure up to 1; NotFound when
// nothing helped.
absl::StatusOr<GptqRun> ClimbDampLadder(MatrixView weight, const Grid& grid, const Hessian& h,
                                        const std::vector<double>& diagonal,
                                        const std::vector<int64_t>& order, double first_damp,
                                        uint8_t* codes, const ExecutionContext& context) {
  // Where ten times the damping would still be next to nothing.
  constexpr double kLeastRaise = 1e-4;
  const double mean = MeanOfLive(diagonal);
  for (double damp = first_damp;; damp = std::clamp(10 * damp, kLeastRaise, 1.0)) {
    const double damp_value = damp * mean;
    std::vector<double> damped(diagonal);
    for (double& value : damped) value = (value == 0 ? 1 : value) + damp_value;
    absl::StatusOr<UpperFactor> factor = FactorizeUpper({.values = h.sum,
                                                         .size = h.size,
                                                         .order = order.data(),
                                                         .scale = h.scale,
                                                         .diagonal = damped.data()},
                                                        context);
    if (factor.ok()) {
      absl::StatusOr<GptqErrors> errors = RunGptq(weight, grid, order, *factor, codes, context);
      if (!errors.ok()) return errors.status();
      if (std::isfinite(errors->damped_loss) && std::isfinite(errors->squared_norm)) {
        return GptqRun{.errors = *errors, .damp = damp, .damp_value = damp_value};
      }
    } else if (!absl::IsFailedPrecondition(factor.status())) {
      return factor.status();
    }
    if (damp >= 1) {
      return absl::NotFoundError(
          StrCat("H could not be factorised with damp ", first_damp, " nor any up to ", damp));
    }
  }
}

absl::Status AddRtnLoss(MatrixView weight, const Hessian& h, const Grid& grid,
                        QuantizedWeight* result, const ExecutionContext& context) {
  absl::StatusOr<std::optional<double>> loss = ErrorTrace(
      weight.rows, weight.cols, h,
      [&](int64_t r, float* out) {
        const float* w = weight.data + r * weight.cols;
        RoundRow(grid, r, w, nullptr, out);
        for (int64_t c = 0; c < weight.cols; ++c) out[c] = w[c] - out[c];
      },
      context);
  if (!loss.ok()) return loss.status();
  result->rtn_loss = *loss;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<QuantizedWeight> Gptq(const Layer& layer, const ExecutionContext& context) {
  const Hessian& h = *layer.h;
  const MatrixView weight = layer.weight;
  const QuantizerSpec& spec = layer.spec;
  std::vector<double> diagonal(static_cast<size_t>(h.size));
  for (int64_t i = 0; i < h.size; ++i) diagonal[static_cast<size_t>(i)] = h.Diagonal(i);
  absl::StatusOr<std::vector<float>> zeroed = ZeroDeadColumns(layer, diagonal, context);
  if (!zeroed.ok()) return zeroed.status();
  MatrixView live = weight;
  if (!zeroed->empty()) live.data = zeroed->data();

  QuantizedWeight result;
  Grid grid = EmptyGrid(weight.rows, weight.cols, spec);
  absl::StatusOr<bool> fits = FitGrid(layer, live, &grid, &result.clipped_groups, context);
  if (!fits.ok()) return fits.status();
  if (!*fits) return TooLargeForGrid(spec);

  result.codes.resize(static_cast<size_t>(layer.size()));
  result.dequantized.resize(static_cast<size_t>(layer.size()));
  result.order = ProcessingOrder(diagonal, spec.order);
  absl::StatusOr<GptqRun> run = ClimbDampLadder(live, grid, h, diagonal, result.order, spec.damp,
                                                result.codes.data(), context);
  if (absl::IsNotFound(run.status())) {
    return RoundToNearest(layer, LayerStatus::kRtnFallback, std::string(run.status().message()),
                          context);
  }
  if (!run.ok()) return run.status();
  if (run->damp != spec.damp) {
    result.status = LayerStatus::kDamped;
    result.status_detail = StrCat("damp ", run->damp, " instead of ", spec.damp);
  }
  result.damp = run->damp;
  result.damp_value = run->damp_value;

  absl::Status done = ForEachRow(
      weight.rows, weight.cols,
      [&](int64_t r) {
        const int64_t begin = r * weight.cols;
        DecodeRow(grid, r, result.codes.data() + begin, result.dequantized.data() + begin);
      },
      context);
  if (!done.ok()) return done;

  const double damped = run->errors.damped_loss;
  const double undamped = damped - run->damp_value * run->errors.squared_norm;
  result.loss_damped = damped;
  // The difference is free, but loses as many digits as the damping takes of it; and with few
  // weights the float32 errors of its terms do not average out.
  constexpr double kLeastShare = 0.05;
  constexpr int64_t kManyWeights = 1 << 16;
  if (undamped > kLeastShare * damped && layer.size() >= kManyWeights) {
    result.loss = undamped;
  } else {
    absl::StatusOr<std::optional<double>> loss = LayerLoss(layer, result.dequantized, context);
    if (!loss.ok()) return loss.status();
    result.loss = *loss;
  }
  if (spec.baselines) {
    if (done = AddRtnLoss(live, h, grid, &result, context); !done.ok()) return done;
    if (done = AddOutputEnergy(layer, &result, context); !done.ok()) return done;
  }
  result.scale = std::move(grid.scale);
  result.zero = std::move(grid.zero);
  return result;
}

}  // namespace ptqwatch::internal
