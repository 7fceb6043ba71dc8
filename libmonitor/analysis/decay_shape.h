#ifndef PTQWATCH_ANALYSIS_DECAY_SHAPE_H_
#define PTQWATCH_ANALYSIS_DECAY_SHAPE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// s(t) of the shape, for t in [0, 1]: from 1 at the start of a decay to 0 at its end.
double ShapeAt(DecayShape shape, double t);

/// The weights, oldest first, with which an average of `count` snapshots emulates a decay over them
/// (WSM, arXiv 2507.17634): c_i = s(i / n) - s((i + 1) / n) for i = 0 ... n - 1. In the average the
/// update between snapshots i - 1 and i counts s(i / n) times. The weights are positive and, up to
/// rounding, add up to 1. A linear decay gives the mean.
std::vector<double> MergeWeights(DecayShape shape, size_t count);

/// A merge: the weighted average of the newest snapshots.
struct Merge {
  DecayShape shape = DecayShape::kLinear;
  int64_t snapshots = 0;
};
/// The merges to try with a window of this many snapshots, beside its mean: all shapes over the
/// whole window, half and a quarter of it, at least three snapshots each; those that differ most
/// from the mean first.
std::vector<Merge> MergesOf(int64_t window);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_DECAY_SHAPE_H_
