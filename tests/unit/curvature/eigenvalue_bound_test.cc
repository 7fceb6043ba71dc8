#include "curvature/eigenvalue_bound.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "ATen/ops/linalg_eigvalsh.h"
#include "ATen/ops/linspace.h"
#include "ATen/ops/zeros.h"
#include "curvature/eigenpair.h"
#include "support/matrix_operator.h"

namespace ptqwatch::internal {
namespace eigenvalue_bound_test {

using testing::MatrixOperator;
using testing::MatrixWith;

TEST(EigenvalueBound, OfOneStepSolvesItsQuadratic) {
  // 1 + ((x - 1) / 0.5)^2 = 1 / 0.2
  const std::vector<double> diagonal = {1};
  const std::vector<double> remainders = {0.5};
  EXPECT_NEAR(EigenvalueBound(diagonal, remainders, 1, 0.2), 2, 1e-4);
  // From a start that is nearly the eigenvector, the value found is the only one.
  EXPECT_NEAR(EigenvalueBound(diagonal, remainders, 1, 1), 1, 1e-4);
  EXPECT_EQ(EigenvalueBound(diagonal, remainders, 1, 0), std::numeric_limits<double>::infinity());
}

// Lanczos on the diagonal matrix of `values` from the vector `start`, in float64.
struct Steps {
  Steps(const std::vector<double>& values, std::vector<double> start, int count) {
    const size_t n = values.size();
    std::vector<double> before(n);
    double remainder = 0;
    for (int k = 0; k < count; ++k) {
      std::vector<double> next(n);
      double along = 0;
      for (size_t i = 0; i < n; ++i) along += values[i] * start[i] * start[i];
      double squares = 0;
      for (size_t i = 0; i < n; ++i) {
        next[i] = (values[i] - along) * start[i] - remainder * before[i];
        squares += next[i] * next[i];
      }
      remainder = std::sqrt(squares);
      for (double& x : next) x /= remainder;
      diagonal.push_back(along);
      remainders.push_back(remainder);
      before = std::exchange(start, std::move(next));
    }
  }
  double LargestRitzValue() const {
    const auto size = static_cast<int64_t>(diagonal.size());
    at::Tensor matrix = at::zeros({size, size}, at::kDouble);
    for (int64_t i = 0; i < size; ++i) {
      matrix[i][i] = diagonal[static_cast<size_t>(i)];
      if (i > 0) matrix[i][i - 1] = remainders[static_cast<size_t>(i - 1)];
    }
    return at::linalg_eigvalsh(matrix).max().item<double>();
  }
  std::vector<double> diagonal;
  std::vector<double> remainders;
};

TEST(EigenvalueBound, IsTheEigenvalueItselfAStepBeforeTheSpaceIsWhole) {
  const std::vector<double> values = {0, 0.1, 0.3, 1, 2};
  for (const double share : {1e-8, 1e-4, 0.01}) {
    const std::vector<double> start = {0.5, 0.5, 0.5, std::sqrt(0.25 - share), std::sqrt(share)};
    for (int count = 1; count <= 4; ++count) {
      const Steps steps(values, start, count);
      const double bound =
          EigenvalueBound(steps.diagonal, steps.remainders, steps.LargestRitzValue(), share);
      EXPECT_GE(bound, 2 - 1e-6) << count;
      if (count == 4) {
        EXPECT_NEAR(bound, 2, 1e-3) << share;
      }
    }
  }
}

TEST(EigenvalueBound, HoldsInASearchFromARandomStart) {
  at::Tensor values = at::linspace(-0.2, 0.3, 80, at::kDouble);
  values[40] = 1;
  values[41] = 1.3;
  int held = 0;
  double width = 0;
  constexpr int kSeeds = 200;
  MatrixOperator matrix(MatrixWith(values));
  for (int seed = 0; seed < kSeeds; ++seed) {
    ExecutionContext context;
    context.seeds = SeedSource(static_cast<uint64_t>(seed));
    const EigenpairOptions options = {.residual_ratio = 1e-9, .max_products = 4};
    const auto search = ExtremeEigenpair(matrix, {}, options, {}, context);
    ASSERT_TRUE(search.ok()) << search.status();
    EXPECT_GE(search->pair.bound, search->pair.value);
    held += search->pair.bound >= 1.3 ? 1 : 0;
    width += (search->pair.bound - search->pair.value) / kSeeds;
  }
  EXPECT_GE(held, 195);  // of 200 with 97.5 % each
  EXPECT_LT(width, 1);
}

}  // namespace eigenvalue_bound_test
}  // namespace ptqwatch::internal
