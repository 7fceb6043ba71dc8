#ifndef PTQWATCH_CUDA_KERNELS_NUMBERS_H_
#define PTQWATCH_CUDA_KERNELS_NUMBERS_H_

#include <cstdint>

namespace ptqwatch::internal {

/// Ratios that AWQ tries.
inline constexpr int kAwqRatios = 20;

/// What a layer's kernels leave for the host to read at the end: an array of float64 a layer, with
/// these positions. A position of a bad number is -1 where there is none.
enum Number : int {
  kTokens,            ///< finite rows
  kSkippedRows,       ///< others
  kBadWeight,         ///< flat position of the first weight that is not finite
  kBadMoment,         ///< flat position of the first sum of products that is not finite
  kBadScale,          ///< flat position of the first scale that is not finite
  kDeadColumns,       ///< inputs that were always 0
  kDuplicateColumns,  ///< other inputs that equal an earlier one
  kMeanDiagonal,      ///< of H, over inputs that are not dead
  kDampValue,         ///< what was added to the diagonal
  kFactorInfo,        ///< 0 where H was factorised, else not 0
  kLoopLoss,          ///< tr(dW A dW^T) for the matrix A that was factorised
  kLoopSquaredNorm,   ///< |dW|^2 with dead columns left out
  kClippedGroups,     ///< whose grid covers less than their range
  kSquaredError,      ///< |W_hat - W|^2
  kLoss,              ///< tr(dW S dW^T), S the sum of products
  kLossMagnitude,     ///< the same sum over absolute terms
  kRtnLoss,           ///< of round to nearest
  kRtnLossMagnitude,  ///< the same sum over absolute terms
  kEnergy,            ///< tr(W S W^T)
  kEnergyMagnitude,   ///< the same sum over absolute terms
  kBestRatio,         ///< AWQ: which ratio won
  kSearchLosses,      ///< AWQ: value and magnitude, for every ratio
  kNumberCount = kSearchLosses + 2 * kAwqRatios,
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_NUMBERS_H_
