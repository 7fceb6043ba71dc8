#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "quantize/clip_search.h"
#include "quantize/methods.h"
#include "report/str_cat.h"

namespace ptqwatch::internal {
namespace {

constexpr int kSteps = 20;  // ratios 0, 0.05, ..., 0.95

double Ratio(int step) { return static_cast<double>(step) / kSteps; }

// s = max(mean |x|^ratio, 1e-4) / sqrt(max s * min s).
std::vector<float> ChannelScale(const std::vector<double>& mean_abs, double ratio) {
  std::vector<double> s(mean_abs.size());
  for (size_t c = 0; c < s.size(); ++c) s[c] = std::max(std::pow(mean_abs[c], ratio), 1e-4);
  const auto [least, most] = std::minmax_element(s.begin(), s.end());
  const double middle = std::sqrt(*most * *least);
  std::vector<float> rounded(s.size());
  for (size_t c = 0; c < s.size(); ++c) rounded[c] = static_cast<float>(s[c] / middle);
  return rounded;
}

// Rounds rows of W * s to the nearest grid point and takes them back to where W is.
class ScaledRounding {
 public:
  explicit ScaledRounding(const Layer& layer)
      : layer_(layer), scaled_(static_cast<size_t>(layer.weight.cols)) {}

  // `row` of W on row `grid_row` of the grid; `codes` may be null.
  void Round(const std::vector<float>& s, const Grid& grid, int64_t row, int64_t grid_row,
             uint8_t* codes, float* dequantized) {
    Scale(s, row);
    Take(s, grid, grid_row, codes, dequantized);
  }
  // The same on the row's own grid without clipping, which becomes row `grid_row` of `grid`. False
  // when it overflows.
  bool FitAndRound(const std::vector<float>& s, int64_t row, int64_t grid_row, Grid* grid,
                   uint8_t* codes, float* dequantized) {
    Scale(s, row);
    const bool fits = FitRow(scaled_.data(), grid_row, grid);
    Take(s, *grid, grid_row, codes, dequantized);
    return fits;
  }

 private:
  void Scale(const std::vector<float>& s, int64_t row) {
    const float* w = layer_.Row(row);
    for (size_t c = 0; c < scaled_.size(); ++c) scaled_[c] = w[c] * s[c];
  }
  void Take(const std::vector<float>& s, const Grid& grid, int64_t grid_row, uint8_t* codes,
            float* dequantized) {
    RoundRow(grid, grid_row, scaled_.data(), codes, dequantized);
    for (size_t c = 0; c < scaled_.size(); ++c) dequantized[c] /= s[c];
  }

  const Layer& layer_;
  std::vector<float> scaled_;
};

// Infinity when a grid or the sum overflows.
absl::StatusOr<double> LossAt(ExecutionContext& context, const Layer& layer,
                              const std::vector<float>& s) {
  const int64_t cols = layer.weight.cols;
  ScaledRounding rounding(layer);
  Grid grid = EmptyGrid(1, cols, layer.spec);
  bool fits = true;
  absl::StatusOr<std::optional<double>> loss =
      ErrorTrace(context, layer.weight.rows, cols, *layer.h, [&](int64_t r, float* out) {
        fits = rounding.FitAndRound(s, r, 0, &grid, nullptr, out) && fits;
        const float* w = layer.Row(r);
        for (int64_t c = 0; c < cols; ++c) out[c] = w[c] - out[c];
      });
  if (!loss.ok()) return loss.status();
  return fits ? loss->value_or(std::numeric_limits<double>::infinity())
              : std::numeric_limits<double>::infinity();
}

// Clips the groups at the scale that won, and keeps that where the layer does not lose by it.
absl::Status TryClipping(ExecutionContext& context, const Layer& layer, QuantizedWeight* result) {
  const MatrixView weight = layer.weight;
  Grid grid = EmptyGrid(weight.rows, weight.cols, layer.spec);
  absl::StatusOr<ClipResult> clipped =
      FitClippedByOutput(context, weight, result->channel_scale.data(), layer.h->sum, &grid);
  if (!clipped.ok()) return clipped.status();
  if (!clipped->fits || clipped->groups == 0) return absl::OkStatus();
  ScaledRounding rounding(layer);
  std::vector<float> dequantized(result->dequantized.size());
  std::vector<uint8_t> codes(result->codes.size());
  absl::Status done = ForEachRow(context, weight.rows, weight.cols, [&](int64_t r) {
    const int64_t begin = r * weight.cols;
    rounding.Round(result->channel_scale, grid, r, r, codes.data() + begin,
                   dequantized.data() + begin);
  });
  if (!done.ok()) return done;
  absl::StatusOr<std::optional<double>> loss = LayerLoss(context, layer, dequantized);
  if (!loss.ok()) return loss.status();
  // Groups were looked at one by one; H ties them together.
  if (!loss->has_value() || !(**loss <= *result->loss)) {
    result->status_detail =
        StrCat("clipping ", clipped->groups, " groups would raise the loss from ", *result->loss,
               " and was left out");
    return absl::OkStatus();
  }
  result->loss = *loss;
  result->clipped_groups = clipped->groups;
  result->codes = std::move(codes);
  result->dequantized = std::move(dequantized);
  result->scale = std::move(grid.scale);
  result->zero = std::move(grid.zero);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<QuantizedWeight> Awq(ExecutionContext& context, const Layer& layer) {
  const MatrixView weight = layer.weight;
  std::vector<double> mean_abs(layer.statistics->abs_sum);
  for (double& value : mean_abs) value /= static_cast<double>(layer.statistics->tokens);

  QuantizedWeight result;
  for (int i = 0; i < kSteps; ++i) {
    absl::StatusOr<double> loss = LossAt(context, layer, ChannelScale(mean_abs, Ratio(i)));
    if (!loss.ok()) return loss.status();
    result.search_losses.push_back(*loss);
  }
  const auto best = std::min_element(result.search_losses.begin(), result.search_losses.end());
  if (!std::isfinite(*best)) return TooLargeForGrid(layer.spec);
  result.loss = *best;
  // Without a channel scale it is round to nearest.
  if (std::isfinite(result.search_losses[0])) result.rtn_loss = result.search_losses[0];
  result.channel_scale_ratio = Ratio(static_cast<int>(best - result.search_losses.begin()));
  result.channel_scale = ChannelScale(mean_abs, result.channel_scale_ratio);

  result.codes.resize(static_cast<size_t>(layer.size()));
  result.dequantized.resize(static_cast<size_t>(layer.size()));
  Grid grid = EmptyGrid(weight.rows, weight.cols, layer.spec);
  ScaledRounding rounding(layer);
  absl::Status done = ForEachRow(context, weight.rows, weight.cols, [&](int64_t r) {
    const int64_t begin = r * weight.cols;
    rounding.FitAndRound(result.channel_scale, r, r, &grid, result.codes.data() + begin,
                         result.dequantized.data() + begin);
  });
  if (!done.ok()) return done;
  result.scale = std::move(grid.scale);
  result.zero = std::move(grid.zero);
  if (layer.spec.clip == ClipSearch::kMse) {
    if (done = TryClipping(context, layer, &result); !done.ok()) return done;
  }
  if (done = AddOutputEnergy(context, layer, &result); !done.ok()) return done;
  return result;
}

}  // namespace ptqwatch::internal
