#include "quantize/kernels/clip_rules.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace ptqwatch::internal {
namespace {

// The bits of |w|, which are in the order of the magnitudes.
int32_t Magnitude(float w) { return std::bit_cast<int32_t>(w) & 0x7fffffff; }

struct Neighbours {
  float below = 0;
  float above = 0;
};

// The magnitudes at two ranks of the ascending order; `above` is `below` or the next.
Neighbours Select(const float* weights, int64_t count, int64_t below, int64_t above) {
  std::vector<int32_t> magnitudes(static_cast<size_t>(count));
  std::transform(weights, weights + count, magnitudes.begin(), Magnitude);
  const auto place = magnitudes.begin() + below;
  std::nth_element(magnitudes.begin(), place, magnitudes.end());
  const int32_t next = above == below ? *place : *std::min_element(place + 1, magnitudes.end());
  return {.below = std::bit_cast<float>(*place), .above = std::bit_cast<float>(next)};
}

// The same for ranks near the end: walks down from the largest magnitude.
Neighbours WalkDown(const float* weights, int64_t count, int64_t below, int64_t above) {
  Neighbours found;
  int32_t current = std::numeric_limits<int32_t>::max();
  int64_t left = count;  // number of magnitudes that are at most `current`
  bool found_above = false;
  while (left > below) {
    int32_t largest = -1;
    for (int64_t i = 0; i < count; ++i) {
      const int32_t m = Magnitude(weights[i]);
      largest = std::max(largest, m < current ? m : -1);
    }
    int64_t equal = 0;
    for (int64_t i = 0; i < count; ++i) equal += Magnitude(weights[i]) == largest ? 1 : 0;
    current = largest;
    left -= equal;
    if (!found_above && left <= above) {
      found.above = std::bit_cast<float>(current);
      found_above = true;
    }
  }
  found.below = std::bit_cast<float>(current);
  return found;
}

// The clip_value-th percentile of |w|, with the bits of torch.quantile: the quantile is rounded to
// float32, the rank is float64, and the interpolation float32.
float PercentileOf(const float* weights, int64_t count, double clip_value) {
  const int64_t last = count - 1;
  const double rank =
      static_cast<double>(static_cast<float>(clip_value / 100)) * static_cast<double>(last);
  const int64_t below = std::min(static_cast<int64_t>(rank), last);
  const int64_t above = std::min(static_cast<int64_t>(std::ceil(rank)), last);
  constexpr int64_t kMostSteps = 8;  // faster than a selection
  const Neighbours found = last - below < kMostSteps ? WalkDown(weights, count, below, above)
                                                     : Select(weights, count, below, above);
  const auto share = static_cast<float>(rank - static_cast<double>(below));
  const float gap = found.above - found.below;
  return share < 0.5f ? std::fma(share, gap, found.below) : std::fma(share - 1, gap, found.above);
}

// clip_value standard deviations, with n - 1 in the divisor; NaN for a single weight. Sums are
// float64, of differences from the first weight, and always added in the same order.
float DeviationsOf(const float* weights, int64_t count, double clip_value) {
  constexpr int64_t kSums = 8;
  double sums[kSums] = {};
  double squares[kSums] = {};
  const double first = static_cast<double>(weights[0]);
  int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (int64_t k = 0; k < kSums; ++k) {
      const double x = static_cast<double>(weights[i + k]) - first;
      sums[k] += x;
      squares[k] += x * x;
    }
  }
  for (int64_t k = 0; i < count; ++i, ++k) {
    const double x = static_cast<double>(weights[i]) - first;
    sums[k] += x;
    squares[k] += x * x;
  }
  double sum = 0;
  double square = 0;
  for (int64_t k = 0; k < kSums; ++k) {
    sum += sums[k];
    square += squares[k];
  }
  const double n = static_cast<double>(count);
  const double variance = (square - sum * sum / n) / (n - 1);
  return static_cast<float>(clip_value) * static_cast<float>(std::sqrt(variance));
}

constexpr ClipRule kRules[] = {
    {.name = "none"},
    {.name = "mse"},
    {.name = "percentile", .limit = PercentileOf, .largest_value = 100},
    {.name = "std", .limit = DeviationsOf},
};

}  // namespace

absl::Span<const ClipRule> ClipRules() { return kRules; }

const ClipRule& ClipRuleOf(const QuantizerSpec& spec) {
  const auto index = static_cast<size_t>(spec.clip);
  return kRules[index < std::size(kRules) ? index : 0];
}

}  // namespace ptqwatch::internal
