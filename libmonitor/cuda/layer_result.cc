#include <algorithm>
#include <cmath>
#include <utility>

#include "base/strings.h"
#include "cuda/layer_state.h"
#include "quantize/kernels/number_format.h"

namespace ptqwatch::internal {

std::optional<double> LayerState::Loss(const double* numbers, int position) const {
  const double value = 2 / numbers[kTokens] * numbers[position];
  // H is positive semidefinite, so a negative value is rounding.
  return std::isfinite(value) ? std::optional<double>(std::max(0.0, value)) : std::nullopt;
}

bool LayerState::WithoutCodes(const double* numbers, float bad_weight,
                              QuantizedWeight* result) const {
  const auto refuse = [&](LayerStatus status, std::string detail) {
    result->status = status;
    result->status_detail = std::move(detail);
    return true;
  };
  if (size() == 0) return true;
  if (numbers[kBadWeight] >= 0) {
    const int64_t at = BadWeight(numbers);
    return refuse(LayerStatus::kNonFinite,
                  StrCat("weight[", at / layer_.cols, ", ", at % layer_.cols, "] is ", bad_weight));
  }
  if (attempt_.use_moments && numbers[kBadMoment] >= 0) {
    const int64_t row = static_cast<int64_t>(numbers[kBadMoment]) / layer_.cols;
    return refuse(LayerStatus::kNonFinite,
                  StrCat("row ", row, " of the inputs' second moments is not finite"));
  }
  bool fits = numbers[kBadScale] < 0;
  if (attempt_.method->channel_scale) {
    fits = std::isfinite(numbers[kSearchLosses + 2 * static_cast<int>(numbers[kBestRatio])]);
  }
  if (fits) return false;
  return refuse(LayerStatus::kUnsupported, StrCat("a weight is too large for a grid with ",
                                                  ToString(layer_.spec.scale_dtype), " scales"));
}

void LayerState::SetSearch(const double* numbers, QuantizedWeight* result) const {
  for (int i = 0; i < kAwqRatios; ++i) {
    result->search_losses.push_back(Loss(numbers, kSearchLosses + 2 * i).value_or(HUGE_VAL));
  }
  const size_t best = static_cast<size_t>(numbers[kBestRatio]);
  result->loss = result->search_losses[best];
  if (std::isfinite(result->search_losses[0])) result->rtn_loss = result->search_losses[0];
  result->channel_scale_ratio = static_cast<double>(best) / kAwqRatios;
}

void LayerState::SetLosses(const double* numbers, QuantizedWeight* result) const {
  if (!attempt_.use_moments) return;
  if (attempt_.method->channel_scale) {
    SetSearch(numbers, result);
  } else if (!loss_from_loop_) {
    result->loss = Loss(numbers, kLoss);
  }
  if (attempt_.method->factor) {
    result->damp = attempt_.damp;
    result->damp_value = numbers[kDampValue];
    result->loss_damped = numbers[kLoopLoss];
    if (loss_from_loop_) {
      result->loss = numbers[kLoopLoss] - numbers[kDampValue] * numbers[kLoopSquaredNorm];
    }
  } else if (!attempt_.method->channel_scale && !has_rtn_loss_) {
    result->rtn_loss = result->loss;
  }
  if (has_rtn_loss_) result->rtn_loss = Loss(numbers, kRtnLoss);
  if (has_energy_) result->output_energy = Loss(numbers, kEnergy);
}

void LayerState::SetFormat(const double* numbers, QuantizedWeight* result) const {
  const NumberFormat& format = NumbersOf(layer_.spec);
  if (format.scale == GroupScale::kE4m3) {
    result->tensor_scale =
        TensorScaleOf(static_cast<float>(numbers[kLargestWeight]), format).inverse;
  }
  const double weights = numbers[kWeightSquares];
  if (format.scale != GroupScale::kE8m0 || !layer_.spec.baselines || !(weights > 0)) return;
  const double dead = numbers[kDeadSquares];
  const double ideal = numbers[kIdealSquares];
  result->error_parts = {.dead_zone = dead / weights,
                         .grid_noise = ideal / weights,
                         .scale_bias = (numbers[kErrorSquares] - dead - ideal) / weights};
}

void LayerState::AddCounts(const double* numbers, QuantizedWeight* result) const {
  if (attempt_.use_moments) {
    result->dead_columns = static_cast<int64_t>(numbers[kDeadColumns]);
    result->duplicate_columns = static_cast<int64_t>(numbers[kDuplicateColumns]);
  }
  if (attempt_.method->factor && attempt_.damp != layer_.spec.damp &&
      result->status == LayerStatus::kOk) {
    result->status = LayerStatus::kDamped;
    result->status_detail = StrCat("damp ", attempt_.damp, " instead of ", layer_.spec.damp);
  }
  if (layer_.gram != nullptr && numbers[kSkippedRows] > 0) {
    const int64_t skipped = static_cast<int64_t>(numbers[kSkippedRows]);
    const int64_t tokens = static_cast<int64_t>(numbers[kTokens]);
    result->status_detail +=
        StrCat(result->status_detail.empty() ? "" : "; ", skipped, " of ", tokens + skipped,
               " calibration rows were not finite and left out");
  }
}

DeviceResult LayerState::Finish(const double* numbers, float bad_weight,
                                const std::vector<float>& abs_max) const {
  DeviceResult result;
  result.rows = layer_.rows;
  result.cols = layer_.cols;
  QuantizedWeight& out = result.numbers;
  out.status = status_;
  out.status_detail = detail_;
  if (layer_.gram != nullptr && layer_.gram->rows() > 0 && size() > 0) {
    result.tokens = static_cast<int64_t>(numbers[kTokens]);
  }
  const bool codes = !WithoutCodes(numbers, bad_weight, &out);
  if (size() == 0 || out.status == LayerStatus::kNonFinite) return result;
  AddCounts(numbers, &out);
  if (!codes) return result;
  out.clipped_groups = static_cast<int64_t>(numbers[kClippedGroups]);
  SetLosses(numbers, &out);
  SetFormat(numbers, &out);
  for (size_t c = 0; c < abs_max.size(); ++c) {
    if (static_cast<double>(abs_max[c]) >= layer_.spec.outlier_threshold) {
      out.outlier_columns.push_back(static_cast<int64_t>(c));
    }
  }
  result.squared_error = numbers[kSquaredError];
  result.codes = codes_;
  result.dequantized = dequantized_;
  result.scale = scale_;
  result.zero = zero_;
  result.scales = ScaleCount(layer_.rows, layer_.cols,
                             GridOf(layer_.rows, layer_.cols, layer_.spec), *attempt_.method);
  if (attempt_.method->factor) result.order = order_;
  if (attempt_.method->channel_scale) result.channel_scale = channel_scale_;
  return result;
}

}  // namespace ptqwatch::internal
