#include "analysis/outlook.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace ptqwatch::internal {
namespace {

// Most and fewest plateau snapshots before the decay to compare with.
constexpr size_t kMostBefore = 6;
constexpr size_t kLeastBefore = 3;
// Least gain over its scatter for which a share of the gain is meaningful ...
constexpr double kLeastGainSigmas = 4;
// ... and least distance of the smallest loss from the newest ones.
constexpr double kMinimumSigmas = 3;
constexpr size_t kMinimumSnapshots = 3;  // averaged for the minimum, and required after it

struct Losses {
  double full = 0;
  double quantized = 0;
};

std::optional<Losses> At(const Point& point, const QuantizedLoss& quantizer) {
  if (!point.loss_nats) return std::nullopt;
  for (const QuantizedLoss& one : point.quantized) {
    if (SameQuantizer(one, quantizer)) {
      return Losses{*point.loss_nats, one.loss_nats};
    }
  }
  return std::nullopt;
}

struct Mean {
  double value = 0;
  double scatter = 0;
};

template <typename Value>
Mean MeanOf(const std::vector<Losses>& losses, Value value) {
  const double n = static_cast<double>(losses.size());
  Mean mean;
  for (const Losses& one : losses) mean.value += value(one) / n;
  for (const Losses& one : losses) mean.scatter += std::pow(value(one) - mean.value, 2);
  mean.scatter = std::sqrt(mean.scatter / (n - 1));
  return mean;
}

// Finds the smallest mean of three consecutive snapshots, if the newest three are above it.
void FindMinimum(const History& history, absl::Span<const size_t> decay,
                 const QuantizedLoss& quantizer, double scatter, DecayOutlook& outlook) {
  std::vector<double> losses;
  std::vector<size_t> places;
  for (const size_t i : decay) {
    const auto at = At(history.points()[i], quantizer);
    if (!at) continue;
    losses.push_back(at->quantized);
    places.push_back(i);
  }
  const auto mean_from = [&](size_t first) {
    double sum = 0;
    for (size_t i = first; i < first + kMinimumSnapshots; ++i) sum += losses[i];
    return sum / static_cast<double>(kMinimumSnapshots);
  };
  if (losses.size() < 2 * kMinimumSnapshots) return;
  const size_t newest = losses.size() - kMinimumSnapshots;
  size_t best = 0;
  for (size_t first = 1; first + kMinimumSnapshots <= newest; ++first) {
    if (mean_from(first) < mean_from(best)) best = first;
  }
  const double error = scatter * std::sqrt(2.0 / static_cast<double>(kMinimumSnapshots));
  if (mean_from(newest) - mean_from(best) < kMinimumSigmas * error) return;
  const Point& point = history.points()[places[best + 1]];
  outlook.minimum_loss_nats = mean_from(best);
  outlook.minimum_step = point.step;
  outlook.minimum_learning_rate = point.learning_rate;
}

}  // namespace

std::vector<DecayOutlook> OutlookOf(const History& history, absl::Span<const size_t> plateau,
                                    absl::Span<const size_t> decay) {
  std::vector<DecayOutlook> outlooks;
  if (decay.empty()) return outlooks;
  const Point& newest = history.points()[decay.back()];
  for (const QuantizedLoss& quantizer : newest.quantized) {
    std::vector<Losses> before;
    for (size_t i = plateau.size(); i > 0 && before.size() < kMostBefore; --i) {
      if (const auto at = At(history.points()[plateau[i - 1]], quantizer)) before.push_back(*at);
    }
    const auto now = At(newest, quantizer);
    if (!now || before.size() < kLeastBefore) continue;
    DecayOutlook outlook;
    outlook.method = quantizer.method;
    outlook.bits = quantizer.bits;
    outlook.format = quantizer.format;

    const double both = std::sqrt(1 + 1 / static_cast<double>(before.size()));
    const Mean full = MeanOf(before, [](const Losses& l) { return l.full; });
    // The difference of the two losses scatters less than either loss, because they share the
    // checkpoint.
    const Mean delta = MeanOf(before, [](const Losses& l) { return l.quantized - l.full; });
    const double delta_now = now->quantized - now->full;
    const double gain = full.value - now->full;
    const double relative = delta.value > 0 ? delta.scatter / delta.value : 0;
    const double delta_scatter = std::max(delta.scatter, relative * std::abs(delta_now));
    if (gain > 0 && gain >= kLeastGainSigmas * full.scatter * both) {
      const double lost = (delta_now - delta.value) / gain;
      outlook.gain_kept_ratio = 1 - lost;
      outlook.gain_kept_stderr = both / gain * std::hypot(delta_scatter, lost * full.scatter);
    }
    FindMinimum(history, decay, quantizer, std::hypot(full.scatter, delta_scatter), outlook);
    if (outlook.gain_kept_ratio || outlook.minimum_step) outlooks.push_back(outlook);
  }
  return outlooks;
}

}  // namespace ptqwatch::internal
