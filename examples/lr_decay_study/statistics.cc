#include "statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

namespace ptqwatch::examples {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Sum of (x - mean x)(y - mean y).
double Covariation(std::span<const double> x, std::span<const double> y) {
  const double mean_x = Mean(x);
  const double mean_y = Mean(y);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - mean_x) * (y[i] - mean_y);
  return sum;
}

std::vector<double> Ranks(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t first = 0; first < order.size();) {
    size_t last = first;
    while (last + 1 < order.size() && values[order[last + 1]] == values[order[first]]) ++last;
    for (size_t i = first; i <= last; ++i) {
      ranks[order[i]] = 0.5 * static_cast<double>(first + last);
    }
    first = last + 1;
  }
  return ranks;
}

}  // namespace

double Mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double StandardDeviation(std::span<const double> values) {
  if (values.size() < 2) return kNaN;
  return std::sqrt(Covariation(values, values) / static_cast<double>(values.size() - 1));
}

double Spearman(std::span<const double> x, std::span<const double> y) {
  if (x.size() < 2) return kNaN;
  const std::vector<double> ranks_x = Ranks(x);
  const std::vector<double> ranks_y = Ranks(y);
  const double scale = Covariation(ranks_x, ranks_x) * Covariation(ranks_y, ranks_y);
  return scale > 0 ? Covariation(ranks_x, ranks_y) / std::sqrt(scale) : kNaN;
}

double StudentQuantile(long degrees) {
  constexpr std::array kTable = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                 2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                                 2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
                                 2.060,  2.056, 2.052, 2.048, 2.045, 2.042};
  if (degrees <= std::ssize(kTable)) return kTable[static_cast<size_t>(degrees - 1)];
  // The first terms of its expansion about the normal's quantile (Abramowitz and Stegun 26.7.5).
  constexpr double z = 1.959964;
  const double n = static_cast<double>(degrees);
  return z + (z * z * z + z) / (4 * n) +
         (5 * std::pow(z, 5) + 16 * z * z * z + 3 * z) / (96 * n * n);
}

LineFit FitLine(std::span<const double> x, std::span<const double> y) {
  if (x.size() < 3) return {kNaN, kNaN};
  const double spread = Covariation(x, x);
  const double slope = Covariation(x, y) / spread;
  const double residual = std::max(0.0, Covariation(y, y) - slope * Covariation(x, y));
  const long degrees = static_cast<long>(x.size()) - 2;
  return {slope,
          StudentQuantile(degrees) * std::sqrt(residual / static_cast<double>(degrees) / spread)};
}

bool IsRising(std::span<const double> values) {
  for (size_t i = 1; i < values.size(); ++i) {
    if (!(values[i] > values[i - 1])) return false;
  }
  return true;
}

bool IsFalling(std::span<const double> values) {
  for (size_t i = 1; i < values.size(); ++i) {
    if (!(values[i] < values[i - 1])) return false;
  }
  return true;
}

}  // namespace ptqwatch::examples
