#ifndef PTQWATCH_TESTS_BENCHMARKS_PAIRED_RATIO_H_
#define PTQWATCH_TESTS_BENCHMARKS_PAIRED_RATIO_H_

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <utility>
#include <vector>

namespace ptqwatch::benchmarks {

/// The value below which `share` of `values` are. REQUIRES: there is one.
inline double Quantile(std::vector<double> values, double share) {
  const auto index =
      static_cast<std::ptrdiff_t>(std::lround(share * static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + index, values.end());
  return values[static_cast<size_t>(index)];
}

/// Seconds of two windows that were measured one after the other.
struct Pair {
  double busy = 0;
  double paused = 0;
};

struct Interval {
  double value = 0;
  double low = 0;
  double high = 0;
};

inline double RatioOfSums(const std::vector<Pair>& pairs) {
  double busy = 0;
  double paused = 0;
  for (const Pair& pair : pairs) {
    busy += pair.busy;
    paused += pair.paused;
  }
  return busy / paused;
}

inline double MedianOfRatios(const std::vector<Pair>& pairs) {
  std::vector<double> ratios;
  for (const Pair& pair : pairs) ratios.push_back(pair.busy / pair.paused);
  return Quantile(std::move(ratios), 0.5);
}

/// A statistic of the pairs with its 95 % interval: percentiles over 2000 draws of as many pairs.
inline Interval Bootstrap(const std::vector<Pair>& pairs,
                          const std::function<double(const std::vector<Pair>&)>& statistic) {
  std::mt19937_64 random(1);
  std::vector<double> drawn;
  std::vector<Pair> sample(pairs.size());
  for (int i = 0; i < 2000; ++i) {
    for (Pair& pair : sample) pair = pairs[random() % pairs.size()];
    drawn.push_back(statistic(sample));
  }
  return {statistic(pairs), Quantile(drawn, 0.025), Quantile(drawn, 0.975)};
}

}  // namespace ptqwatch::benchmarks

#endif  // PTQWATCH_TESTS_BENCHMARKS_PAIRED_RATIO_H_
