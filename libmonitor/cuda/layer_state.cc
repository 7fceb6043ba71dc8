#include "cuda/layer_state.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "quantize/methods.h"

namespace ptqwatch::internal {
namespace {

// As in quantize/kernels/gram.cc.
constexpr double kSmallTrace = 1 << 24;
constexpr double kCancellation = 100;
// As in quantize/gptq.cc.
constexpr double kMinRetryDamp = 1e-4;
constexpr double kMinLoopShare = 0.05;
constexpr int64_t kMinLoopWeights = 1 << 16;

std::string TooFewTokens(const DeviceLayer& layer, double tokens) {
  return StrCat(static_cast<int64_t>(tokens), " tokens for ", layer.cols, " inputs; ",
                ToString(layer.spec.method), " needs ",
                std::ceil(NeededTokens(layer.spec, layer.cols)));
}

}  // namespace

absl::Status CheckLayer(const DeviceLayer& layer) {
  PTQWATCH_RETURN_IF_ERROR(Validate(layer.spec));
  if (layer.rows < 0 || layer.cols < 0) {
    return absl::InvalidArgumentError(
        StrCat("the weight's shape is [", layer.rows, ", ", layer.cols, "]"));
  }
  if (layer.cols > INT32_MAX) {
    return absl::InvalidArgumentError(StrCat("the weight has ", layer.cols, " columns"));
  }
  if (!DeviceQuantizer::Supports(layer.spec)) {
    return absl::UnimplementedError(
        StrCat(Describe(layer.spec), " with ", layer.cols, " inputs is not available on a device"));
  }
  if (layer.weight == nullptr && layer.rows > 0 && layer.cols > 0) {
    return absl::InvalidArgumentError("weight is null");
  }
  if (layer.gram == nullptr) {
    if (!NeedsStatistics(layer.spec)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        StrCat(ToString(layer.spec.method),
               " needs second moments of the layer's inputs; there are none"));
  }
  if (!layer.gram->finished()) {
    return absl::FailedPreconditionError("second moments are not finished (DeviceGram::Finish)");
  }
  if (layer.gram->moments().inputs != layer.cols) {
    return absl::InvalidArgumentError(StrCat("second moments are of ", layer.gram->moments().inputs,
                                             " inputs, but the weight has ", layer.cols,
                                             " columns"));
  }
  return absl::OkStatus();
}

LayerState::LayerState(const DeviceLayer& layer) : layer_(layer) {
  attempt_.use_moments = layer.gram != nullptr && layer.gram->rows() > 0;
  if (size() == 0) {
    pending_ = false;
    status_ = LayerStatus::kUnsupported;
    detail_ = StrCat("the weight is empty: [", layer.rows, ", ", layer.cols, "]");
    return;
  }
  const double rows = layer.gram == nullptr ? 0 : static_cast<double>(layer.gram->rows());
  if (!RefuseMoments(rows)) PlanMethod();
}

Precision LayerState::FirstPrecision() const {
  if (!attempt_.use_moments) return Precision::kNone;
  const double work = static_cast<double>(size()) * static_cast<double>(layer_.cols);
  return work > kSmallTrace ? Precision::kFloat32 : Precision::kFloat64;
}

void LayerState::PlanRounding(LayerStatus status, std::string detail) {
  status_ = status;
  detail_ = std::move(detail);
  attempt_.method = &kRtnMethod;
  attempt_.quantize = true;
  attempt_.damp = 0;
  attempt_.loss = attempt_.energy = FirstPrecision();
  attempt_.rtn_loss = Precision::kNone;
  has_rtn_loss_ = false;
  has_energy_ = attempt_.use_moments;
  loss_from_loop_ = false;
  pending_ = true;
}

void LayerState::PlanMethod() {
  const QuantizerSpec& spec = layer_.spec;
  attempt_.method = &MethodOf(spec);
  has_energy_ = attempt_.use_moments;
  attempt_.loss = attempt_.energy = FirstPrecision();
  if (attempt_.method->factor) {
    attempt_.damp = spec.damp;
    has_rtn_loss_ = has_energy_ = spec.baselines;
    attempt_.rtn_loss = attempt_.energy = spec.baselines ? FirstPrecision() : Precision::kNone;
    // As on the CPU: with few weights the float32 errors of its terms do not average out.
    loss_from_loop_ = size() >= kMinLoopWeights;
    if (loss_from_loop_) attempt_.loss = Precision::kNone;
  } else if (NeedsAbsMax()) {
    has_rtn_loss_ = true;
    attempt_.rtn_loss = FirstPrecision();
  }
}

// With too few tokens, RTN replaces a method that needs them.
bool LayerState::RefuseMoments(double tokens) {
  if (tokens == 0) attempt_.use_moments = false;
  if (tokens < NeededTokens(layer_.spec, layer_.cols)) {
    PlanRounding(LayerStatus::kTooFewTokens, TooFewTokens(layer_, tokens));
    return true;
  }
  if (StatisticsOf(layer_.spec) == Statistics::kGramAndAbsMax && tokens == 0) {
    status_ = LayerStatus::kTooFewTokens;
    detail_ = "0 tokens: outlier columns are unknown, so none is kept";
  }
  return false;
}

absl::Status LayerState::TakeResults(Arena& arena, double* numbers) {
  numbers_ = numbers;
  if (size() == 0) return absl::OkStatus();
  constexpr char kWhat[] = "a quantized weight";
  codes_ = layer_.codes;
  dequantized_ = layer_.dequantized;
  if (codes_ == nullptr) {
    PTQWATCH_ASSIGN_OR_RETURN(codes_, arena.TakeArray<uint8_t>(size(), kWhat));
  }
  if (dequantized_ == nullptr) {
    PTQWATCH_ASSIGN_OR_RETURN(dequantized_, arena.TakeArray<float>(size(), kWhat));
  }
  const Method& method = MethodOf(layer_.spec);
  // A method that falls back to RTN has the same groups.
  const int64_t scales =
      ScaleCount(layer_.rows, layer_.cols, GridOf(layer_.rows, layer_.cols, layer_.spec), method);
  PTQWATCH_ASSIGN_OR_RETURN(scale_, arena.TakeArray<float>(scales, kWhat));
  if (FormatOf(layer_.spec.method) == "int") {
    PTQWATCH_ASSIGN_OR_RETURN(zero_, arena.TakeArray<float>(scales, kWhat));
  }
  if (method.factor) {
    PTQWATCH_ASSIGN_OR_RETURN(order_, arena.TakeArray<int32_t>(layer_.cols, kWhat));
  }
  if (method.channel_scale) {
    PTQWATCH_ASSIGN_OR_RETURN(channel_scale_, arena.TakeArray<float>(layer_.cols, kWhat));
  }
  return absl::OkStatus();
}

void LayerState::AddTo(LayerGroup& group, int i) const {
  group.weight.at[i] = layer_.weight;
  group.grids.at[i] = GridOf(layer_.rows, layer_.cols, layer_.spec);
  group.codes.at[i] = codes_;
  group.dequantized.at[i] = dequantized_;
  group.scale.at[i] = scale_;
  group.zero.at[i] = zero_;
  group.channel_scale.at[i] = channel_scale_;
  group.order.at[i] = order_;
  group.numbers.at[i] = numbers_;
  if (!attempt_.use_moments) return;
  const DeviceMoments& moments = layer_.gram->moments();
  group.sum.at[i] = moments.sum;
  group.abs_sum.at[i] = moments.abs_sum;
  group.abs_max.at[i] = moments.abs_max;
  group.counts.at[i] = moments.counts;
}

// Without tokens there is no H. A clipped grid has used it and must be fitted again.
void LayerState::ForgetMoments() {
  attempt_.use_moments = has_rtn_loss_ = has_energy_ = false;
  attempt_.loss = attempt_.rtn_loss = attempt_.energy = Precision::kNone;
  pending_ = attempt_.method == &kRtnMethod && layer_.spec.clip != ClipSearch::kNone;
}

int64_t LayerState::BadWeight(const double* numbers) const {
  return size() == 0 ? -1 : static_cast<int64_t>(numbers[kBadWeight]);
}

bool LayerState::NeedsAbsMax() const {
  return attempt_.use_moments &&
         attempt_.method->statistics(layer_.spec) == Statistics::kGramAndAbsMax;
}

void LayerState::Judge(const double* numbers) {
  if (size() == 0 || numbers[kBadWeight] >= 0) return;
  if (attempt_.use_moments) {
    if (numbers[kBadMoment] >= 0) return;
    // Rows that are not finite do not count as tokens, so the count is known only after a pass.
    const double tokens = numbers[kTokens];
    if (attempt_.method == &MethodOf(layer_.spec)) {
      if (RefuseMoments(tokens)) return;
    } else if (status_ == LayerStatus::kTooFewTokens) {
      detail_ = TooFewTokens(layer_, tokens);
    }
    if (tokens == 0) {
      ForgetMoments();
      return;
    }
  }
  if (!attempt_.method->channel_scale && numbers[kBadScale] >= 0) return;
  if (attempt_.method->factor) JudgeFactor(numbers);
  if (!pending_ && attempt_.use_moments) JudgeLosses(numbers);
}

void LayerState::JudgeFactor(const double* numbers) {
  if (numbers[kFactorInfo] == 0 && std::isfinite(numbers[kLoopLoss]) &&
      std::isfinite(numbers[kLoopSquaredNorm])) {
    return;
  }
  if (attempt_.damp >= 1) {
    const absl::Status failed = absl::NotFoundError(StrCat(
        "H could not be factorised with damp ", layer_.spec.damp, " or any up to ", attempt_.damp));
    PlanRounding(LayerStatus::kRtnFallback, StrCat(failed));
    return;
  }
  const double damp = std::clamp(10 * attempt_.damp, kMinRetryDamp, 1.0);
  PlanMethod();
  attempt_.damp = damp;
  attempt_.quantize = true;
  pending_ = true;
}

// Also true for a zero: float32 products may have underflowed.
bool LayerState::Cancels(const double* numbers, int position) const {
  const double magnitude = numbers[position + 1];
  return !(std::isfinite(magnitude) && magnitude < kCancellation * std::abs(numbers[position]));
}

void LayerState::JudgeLosses(const double* numbers) {
  Attempt again = attempt_;
  again.quantize = false;
  const auto look = [&](Precision precision, int position) {
    const bool repeat = precision == Precision::kFloat32 && Cancels(numbers, position);
    pending_ = pending_ || repeat;
    return repeat ? Precision::kFloat64 : Precision::kNone;
  };
  again.rtn_loss = look(attempt_.rtn_loss, kRtnLoss);
  again.energy = look(attempt_.energy, kEnergy);
  if (attempt_.method->channel_scale) {
    if (attempt_.quantize && attempt_.loss == Precision::kFloat32) {
      for (int i = 0; i < kAwqRatios; ++i) look(attempt_.loss, kSearchLosses + 2 * i);
      again.quantize = pending_;
      again.loss = pending_ ? Precision::kFloat64 : Precision::kNone;
    } else {
      again.loss = Precision::kNone;
    }
  } else {
    again.loss = look(attempt_.loss, kLoss);
  }
  if (loss_from_loop_ && attempt_.method->factor) {
    const double damped = numbers[kLoopLoss];
    const double undamped = damped - numbers[kDampValue] * numbers[kLoopSquaredNorm];
    // If damping is most of the loss, the difference cancels.
    if (!(undamped > kMinLoopShare * damped)) {
      loss_from_loop_ = false;
      again.loss = FirstPrecision();
      pending_ = true;
    }
  }
  if (pending_) attempt_ = again;
}

}  // namespace ptqwatch::internal
