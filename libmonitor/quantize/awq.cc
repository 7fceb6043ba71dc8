#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"
#include "quantize/kernels/clip_search.h"
#include "quantize/layer.h"
#include "quantize/methods.h"

namespace ptqwatch::internal {
namespace {

constexpr int kSteps = 20;  // ratios 0, 0.05, ..., 0.95

double Ratio(int step) { return static_cast<double>(step) / kSteps; }

// s = max(mean |x|^ratio, 1e-4) / sqrt(max s * min s).
std::vector<float> ChannelScale(const std::vector<double>& mean_abs, double ratio) {
  std::vector<double> s(mean_abs.size());
  for (size_t c = 0; c < s.size(); ++c) s[c] = std::max(std::pow(mean_abs[c], ratio), 1e-4);
  const auto [smallest, largest] = std::minmax_element(s.begin(), s.end());
  const double middle = std::sqrt(*largest * *smallest);
  std::vector<float> rounded(s.size());
  for (size_t c = 0; c < s.size(); ++c) rounded[c] = static_cast<float>(s[c] / middle);
  return rounded;
}

void ScaleRow(const Layer& layer, const std::vector<float>& s, int64_t row, float* out) {
  const float* w = layer.Row(row);
  for (size_t c = 0; c < s.size(); ++c) out[c] = w[c] * s[c];
}

// Rounds a row of W * s, passed in `values`, and divides it by s. `codes` may be null.
void RoundScaledRow(const Grid& grid, const std::vector<float>& s, int64_t row, uint8_t* codes,
                    float* values) {
  RoundRow(grid, row, values, codes, values);
  for (size_t c = 0; c < s.size(); ++c) values[c] /= s[c];
}

bool AllFinite(const Grid& grid) {
  return std::all_of(grid.scale.begin(), grid.scale.end(),
                     [](float s) { return std::isfinite(s); });
}

// The loss at one channel scale; infinity if a grid or the sum overflows. Overwrites `grid`.
absl::StatusOr<double> LossAt(const Layer& layer, const std::vector<float>& s, Grid* grid,
                              const ExecutionContext& context) {
  const int64_t cols = layer.weight.cols;
  PTQWATCH_ASSIGN_OR_RETURN(const std::optional<double> loss,
                            ErrorTrace(
                                layer.weight.rows, cols, *layer.h,
                                [&](int64_t r, float* out) {
                                  ScaleRow(layer, s, r, out);
                                  FitRow(out, r, grid);
                                  RoundScaledRow(*grid, s, r, nullptr, out);
                                  const float* w = layer.Row(r);
                                  for (int64_t c = 0; c < cols; ++c) out[c] = w[c] - out[c];
                                },
                                context));
  constexpr double kNone = std::numeric_limits<double>::infinity();
  return AllFinite(*grid) ? loss.value_or(kNone) : kNone;
}

// Clips the groups at the best channel scale. Keeps the result only if the loss of the layer does
// not grow.
absl::Status TryClipping(const Layer& layer, QuantizedWeight* result,
                         const ExecutionContext& context) {
  const MatrixView weight = layer.weight;
  Grid grid = EmptyGrid(weight.rows, weight.cols, layer.spec);
  PTQWATCH_ASSIGN_OR_RETURN(
      const ClipResult clipped,
      FitClippedByOutput(weight, result->channel_scale.data(), layer.h->sum, &grid, context));
  if (!clipped.fits || clipped.groups == 0) return absl::OkStatus();
  std::vector<float> dequantized(result->dequantized.size());
  std::vector<uint8_t> codes(result->codes.size());
  PTQWATCH_RETURN_IF_ERROR(ForEachRow(
      weight.rows, weight.cols,
      [&](int64_t r) {
        const int64_t begin = r * weight.cols;
        ScaleRow(layer, result->channel_scale, r, dequantized.data() + begin);
        RoundScaledRow(grid, result->channel_scale, r, codes.data() + begin,
                       dequantized.data() + begin);
      },
      context));
  PTQWATCH_ASSIGN_OR_RETURN(const std::optional<double> loss,
                            LayerLoss(layer, dequantized, context));
  // Each group was clipped on its own, but H couples them.
  if (!loss.has_value() || !(*loss <= *result->loss)) {
    result->status_detail =
        StrCat("clipping ", clipped.groups, " groups would raise the loss from ", *result->loss,
               "; not clipped");
    return absl::OkStatus();
  }
  result->loss = loss;
  result->clipped_groups = clipped.groups;
  result->codes = std::move(codes);
  result->dequantized = std::move(dequantized);
  result->scale = std::move(grid.scale);
  result->zero = std::move(grid.zero);
  return absl::OkStatus();
}

// Uses the one of kSteps channel scales with the smallest loss of the layer.
absl::StatusOr<QuantizedWeight> Awq(const Layer& layer, const ExecutionContext& context) {
  const MatrixView weight = layer.weight;
  std::vector<double> mean_abs(layer.statistics->abs_sum);
  for (double& value : mean_abs) value /= static_cast<double>(layer.statistics->tokens);

  QuantizedWeight result;
  Grid grid = EmptyGrid(weight.rows, weight.cols, layer.spec);
  for (int i = 0; i < kSteps; ++i) {
    PTQWATCH_ASSIGN_OR_RETURN(const double loss,
                              LossAt(layer, ChannelScale(mean_abs, Ratio(i)), &grid, context));
    result.search_losses.push_back(loss);
  }
  const auto best = std::min_element(result.search_losses.begin(), result.search_losses.end());
  if (!std::isfinite(*best)) return TooLargeForGrid(layer.spec);
  result.loss = *best;
  // At the first ratio, 0, the channel scale is 1: round to nearest.
  if (std::isfinite(result.search_losses[0])) result.rtn_loss = result.search_losses[0];
  result.channel_scale_ratio = Ratio(static_cast<int>(best - result.search_losses.begin()));
  result.channel_scale = ChannelScale(mean_abs, result.channel_scale_ratio);

  ReserveWeights(layer, &result);
  result.codes.resize(static_cast<size_t>(layer.size()));
  result.dequantized.resize(static_cast<size_t>(layer.size()));
  PTQWATCH_RETURN_IF_ERROR(ForEachRow(
      weight.rows, weight.cols,
      [&](int64_t r) {
        float* out = result.dequantized.data() + r * weight.cols;
        ScaleRow(layer, result.channel_scale, r, out);
        FitRow(out, r, &grid, &result.clipped_groups);
        RoundScaledRow(grid, result.channel_scale, r, result.codes.data() + r * weight.cols, out);
      },
      context));
  result.scale = std::move(grid.scale);
  result.zero = std::move(grid.zero);
  if (layer.spec.clip == ClipSearch::kMse) {
    PTQWATCH_RETURN_IF_ERROR(TryClipping(layer, &result, context));
  }
  PTQWATCH_RETURN_IF_ERROR(AddOutputEnergy(layer, &result, context));
  return result;
}

int64_t AwqBytes(int64_t rows, int64_t cols, const QuantizerSpec& spec) {
  const int64_t grid = GridBytes(rows, cols, spec);
  if (spec.clip != ClipSearch::kMse) return grid;
  const int64_t group = spec.group_size < 0 ? cols : std::min<int64_t>(spec.group_size, cols);
  return 2 * grid + 5 * rows * cols + 4 * group * group;
}

}  // namespace

const Method kAwqMethod = {
    .grid = true,
    .channel_scale = true,
    .statistics = [](const QuantizerSpec&) { return Statistics::kGramAndAbsSum; },
    .min_tokens = [](const QuantizerSpec&, int64_t) { return 1.0; },
    .bytes = AwqBytes,
    .flops = [](double rows, double cols,
                const QuantizerSpec&) { return (kSteps + 1) * rows * cols * cols; },
    .quantize = Awq,
};

}  // namespace ptqwatch::internal
