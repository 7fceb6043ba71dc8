#include "analysis/decay_end.h"

#include <algorithm>
#include <cmath>

#include "analysis/decay_shape.h"
#include "base/strings.h"
#include "report/watched_quantizer.h"

namespace ptqwatch {
namespace internal {
namespace {

// A decay of twice the length ends with an error larger by a tenth (arXiv 2510.06213, Pythia-160M
// at 4 bits) to a fifth (tests/benchmarks/shadow_cooldown.cc, which also measures the scatter).
constexpr LengthPrior kErrorByLength{.slope = 0.15, .slope_stddev = 0.06, .scatter = 0.09};
constexpr LengthPrior kTraceByLength{.slope = 0.2, .slope_stddev = 0.1, .scatter = 0.09};
// The loss falls with the length. The decays themselves show by how much, so the prior is almost
// flat.
constexpr LengthPrior kLossByLength{.slope = -0.015, .slope_stddev = 0.02, .scatter = 0.004};

constexpr double kTwoSided95 = 1.96;
// The first 1 / kWarmupShare of settling is a warm-up, because the first steps of a new optimizer
// are as large as its rate, whatever the gradient.
constexpr int64_t kWarmupShare = 5;

// Extrapolates the quantity that `of` reads from each measured decay.
template <typename Of>
std::optional<Interval> Extrapolate(const PredictedEnd& end, const LengthPrior& prior, Of of) {
  std::vector<EndPoint> points;
  for (const SimulatedDecay& decay : end.decays) {
    if (decay.status != ProbeStatus::kOk) continue;
    EndPoint point{.share = static_cast<double>(decay.steps) /
                            static_cast<double>(std::max<int64_t>(1, end.decay_steps))};
    if (of(decay, point)) points.push_back(point);
  }
  return ExtrapolateEnd(points, prior);
}

template <std::optional<double> SimulatedDecay::*kMember>
bool Take(const SimulatedDecay& decay, EndPoint& point) {
  if (!(decay.*kMember)) return false;
  point.value = *(decay.*kMember);
  return true;
}

}  // namespace

std::vector<DecayPlan> PlanDecays(const CooldownOptions& options, int64_t decay_steps) {
  std::vector<DecayPlan> decays;
  for (const double share : options.lengths) {
    const auto steps = std::max<int64_t>(1, std::llround(share * static_cast<double>(decay_steps)));
    if (!decays.empty() && steps <= decays.back().steps) continue;
    decays.push_back({std::min(options.settle_steps, steps), steps});
  }
  return decays;
}

double SimulatedRate(const CooldownOptions& options, const DecayPlan& decay, double rate,
                     int64_t index) {
  if (index < 0) {
    const double warmup = std::max(1.0, static_cast<double>(decay.settle_steps / kWarmupShare));
    return rate * std::min(1.0, static_cast<double>(decay.settle_steps + index + 1) / warmup);
  }
  const double t = static_cast<double>(index) / static_cast<double>(decay.steps);
  return rate * (options.final_ratio + (1 - options.final_ratio) * ShapeAt(options.shape, t));
}

std::optional<Interval> ExtrapolateEnd(absl::Span<const EndPoint> points,
                                       const LengthPrior& prior) {
  // y = a + b x with x = log2(share). The prior of a is flat; b has `prior`. Points are
  // weighted by their inverse variances.
  double w = 0;
  double wx = 0;
  double wy = 0;
  double wxx = 0;
  double wxy = 0;
  for (const EndPoint& point : points) {
    if (!(point.share > 0 && point.value > 0 && std::isfinite(point.value))) continue;
    const double x = std::log2(point.share);
    const double y = std::log(point.value);
    const double weight =
        1 / (prior.scatter * prior.scatter + point.relative_stderr * point.relative_stderr);
    w += weight;
    wx += weight * x;
    wy += weight * y;
    wxx += weight * x * x;
    wxy += weight * x * y;
  }
  if (w <= 0) return std::nullopt;
  const double mean_x = wx / w;
  const double mean_y = wy / w;
  const double prior_weight = 1 / (prior.slope_stddev * prior.slope_stddev);
  const double slope_weight = wxx - wx * mean_x + prior_weight;
  const double slope = (wxy - wx * mean_y + prior_weight * prior.slope) / slope_weight;
  const double end = mean_y - slope * mean_x;
  // The variance of the fitted line at x = 0, plus the scatter of the single decay that will be
  // run.
  const double variance = 1 / w + mean_x * mean_x / slope_weight + prior.scatter * prior.scatter;
  const double width = kTwoSided95 * std::sqrt(variance);
  return Interval{std::exp(end), std::exp(end - width), std::exp(end + width)};
}

void PredictEnd(PredictedEnd& end) {
  if (const auto loss = Extrapolate(end, kLossByLength, Take<&SimulatedDecay::loss_nats>)) {
    end.loss_nats = loss->value;
    end.loss_low_nats = loss->low;
    end.loss_high_nats = loss->high;
  }
  if (const auto trace = Extrapolate(end, kTraceByLength, Take<&SimulatedDecay::trace>)) {
    end.trace = trace->value;
    end.trace_low = trace->low;
    end.trace_high = trace->high;
  }
  end.quantization.clear();
  for (const SimulatedDecay& decay : end.decays) {
    for (const SimulatedError& error : decay.quantization) {
      const bool known =
          std::any_of(end.quantization.begin(), end.quantization.end(),
                      [&](const PredictedError& other) { return SameQuantizer(error, other); });
      if (!known) end.quantization.push_back({error.method, error.bits, {}, {}, {}, error.format});
    }
  }
  for (PredictedError& predicted : end.quantization) {
    const auto error =
        Extrapolate(end, kErrorByLength, [&](const SimulatedDecay& decay, EndPoint& point) {
          for (const SimulatedError& simulated : decay.quantization) {
            if (!SameQuantizer(simulated, predicted) || !simulated.error_ratio) continue;
            point.value = *simulated.error_ratio;
            point.relative_stderr = simulated.error_ratio_stderr.value_or(0) / point.value;
            return true;
          }
          return false;
        });
    if (!error) continue;
    predicted.error_ratio = error->value;
    predicted.error_low_ratio = error->low;
    predicted.error_high_ratio = error->high;
  }
  const bool ended = std::any_of(end.decays.begin(), end.decays.end(), [](const auto& decay) {
    return decay.status == ProbeStatus::kOk;
  });
  if (ended) end.status = ProbeStatus::kOk;
}

std::string DescribePrediction(const PredictedEnd& end) {
  std::string text = StrFormat("step %d, a decay of %d steps", end.step, end.decay_steps);
  std::vector<QuantizationReport> quantizers;
  for (const PredictedError& error : end.quantization) {
    QuantizationReport& quantizer = quantizers.emplace_back();
    quantizer.method = error.method;
    quantizer.bits = error.bits;
  }
  const std::optional<size_t> watched = WatchedQuantizer(quantizers);
  if (watched && end.quantization[*watched].error_ratio) {
    const PredictedError& error = end.quantization[*watched];
    text += StrFormat(": %s error would end at %.2g %% (%.2g-%.2g %%)", ShortName(KeyOf(error)),
                      100 * *error.error_ratio, 100 * *error.error_low_ratio,
                      100 * *error.error_high_ratio);
  }
  if (end.loss_nats) text += StrFormat(", loss %.3f", *end.loss_nats);
  return text;
}

}  // namespace internal

std::vector<double> DefaultCooldownLengths() { return {1.0 / 8, 1.0 / 4, 1.0 / 2}; }

}  // namespace ptqwatch
