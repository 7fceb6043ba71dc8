#include "analysis/decay_shape.h"

#include <cmath>
#include <numbers>

namespace ptqwatch::internal {
namespace {

// Two snapshots have the same weights with a linear and a cosine decay.
constexpr int64_t kFewestMerged = 3;

}  // namespace

double ShapeAt(DecayShape shape, double t) {
  switch (shape) {
    case DecayShape::kLinear:
      return 1 - t;
    case DecayShape::kOneMinusSqrt:
      return 1 - std::sqrt(t);
    case DecayShape::kCosine:
      return 0.5 * (1 + std::cos(std::numbers::pi * t));
  }
  return 1 - t;
}

std::vector<double> MergeWeights(DecayShape shape, size_t count) {
  const double n = static_cast<double>(count);
  std::vector<double> weights;
  double before = 1;
  for (size_t i = 1; i <= count; ++i) {
    const double after = i == count ? 0 : ShapeAt(shape, static_cast<double>(i) / n);
    weights.push_back(before - after);
    before = after;
  }
  return weights;
}

std::vector<Merge> MergesOf(int64_t window) {
  std::vector<Merge> merges;
  int64_t before = 0;
  for (const int64_t divisor : {1, 2, 4}) {
    const int64_t snapshots = (window + divisor - 1) / divisor;
    if (snapshots < kFewestMerged || snapshots == before) continue;
    before = snapshots;
    merges.push_back({DecayShape::kOneMinusSqrt, snapshots});
    merges.push_back({DecayShape::kCosine, snapshots});
    // Over the whole window, the linear one is the mean.
    if (snapshots < window) merges.push_back({DecayShape::kLinear, snapshots});
  }
  return merges;
}

}  // namespace ptqwatch::internal
