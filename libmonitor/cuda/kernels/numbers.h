#ifndef PTQWATCH_CUDA_KERNELS_NUMBERS_H_
#define PTQWATCH_CUDA_KERNELS_NUMBERS_H_

#include <cstdint>

namespace ptqwatch::internal {

/// The number of ratios that AWQ tries.
inline constexpr int kAwqRatios = 20;

/// Positions in a layer's array of float64 results, which the host reads at the end. The position
/// of a bad number is -1 if there is none.
enum Number : int {
  kTokens,            ///< finite rows
  kSkippedRows,       ///< other rows
  kBadWeight,         ///< flat position of the first weight that is not finite
  kBadMoment,         ///< flat position of the first sum of products that is not finite
  kBadScale,          ///< flat position of the first scale that is not finite
  kDeadColumns,       ///< inputs that were always 0
  kDuplicateColumns,  ///< inputs, not dead, that equal an earlier one
  kMeanDiagonal,      ///< of H, over inputs that are not dead
  kDampValue,         ///< added to the diagonal
  kFactorInfo,        ///< 0 if H was factorised, else not 0
  kLoopLoss,          ///< tr(dW A dW^T) for the factorised matrix A
  kLoopSquaredNorm,   ///< |dW|^2 without dead columns
  kClippedGroups,     ///< groups whose grid covers less than their range
  kSquaredError,      ///< |W_hat - W|^2
  kLoss,              ///< tr(dW S dW^T), S the sum of products
  kLossMagnitude,     ///< the same sum over absolute terms
  kRtnLoss,           ///< tr(dW S dW^T) for round to nearest
  kRtnLossMagnitude,  ///< the same sum over absolute terms
  kEnergy,            ///< tr(W S W^T)
  kEnergyMagnitude,   ///< the same sum over absolute terms
  kLargestWeight,     ///< max|w|, for formats with a scale for the tensor
  kWeightSquares,     ///< the four sums of SumErrorParts, for formats with power-of-two scales
  kErrorSquares,
  kDeadSquares,
  kIdealSquares,
  kBestRatio,     ///< AWQ: index of the best ratio
  kSearchLosses,  ///< AWQ: value and magnitude for every ratio
  kNumberCount = kSearchLosses + 2 * kAwqRatios,
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_KERNELS_NUMBERS_H_
