#include "quantize/kernels/cholesky.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "unit/quantize/reference.h"

namespace ptqwatch::internal {
namespace cholesky_test {

// A positive definite matrix in a random order, as FactorizeUpper takes it.
struct Problem {
  explicit Problem(int64_t n) : size(n), order(static_cast<size_t>(n)) {
    values = testing::NaiveGram(testing::CorrelatedInputs(2 * n + 3, n, 1)).sum;
    for (int64_t i = 0; i < n; ++i) diagonal.push_back(0.5 * At(i, i) + 0.1);
    std::iota(order.begin(), order.end(), int64_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937_64(2));
  }
  double At(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * size + j)]; }
  PermutedSymmetric view() const {
    return {.values = values.data(),
            .size = size,
            .order = order.data(),
            .scale = 0.5,
            .diagonal = diagonal.data()};
  }
  // Entry (i, j) of the matrix that is factorised.
  double Entry(int64_t i, int64_t j) const {
    const int64_t a = order[static_cast<size_t>(i)];
    const int64_t b = order[static_cast<size_t>(j)];
    return i == j ? diagonal[static_cast<size_t>(a)] : 0.5 * At(a, b);
  }

  int64_t size;
  std::vector<double> values;
  std::vector<int64_t> order;
  std::vector<double> diagonal;
};

TEST(FactorizeUpper, MultipliesBackOnEveryTargetAndSize) {
  for (int64_t target : testing::UsableTargets()) {
    const testing::OnlyTarget only(target);
    for (int64_t n : {1, 2, 3, 4, 5, 11, 12, 13, 23, 24, 25, 48, 95, 96, 97, 131, 250}) {
      const Problem problem(n);
      ExecutionContext context;
      absl::StatusOr<UpperFactor> r = FactorizeUpper(problem.view(), context);
      ASSERT_TRUE(r.ok()) << n << " " << r.status();
      ASSERT_EQ(r->size(), n);
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_GT(r->At(i, i), 0);
        for (int64_t j = i; j < n; ++j) {
          double sum = 0;
          for (int64_t k = j; k < n; ++k) sum += r->At(i, k) * r->At(j, k);
          const double size = std::sqrt(problem.Entry(i, i) * problem.Entry(j, j));
          ASSERT_NEAR(sum, problem.Entry(i, j), 1e-13 * size) << n << " " << i << " " << j;
        }
      }
    }
  }
}

TEST(FactorizeUpper, CopiesColumns) {
  const Problem problem(61);
  ExecutionContext context;
  absl::StatusOr<UpperFactor> r = FactorizeUpper(problem.view(), context);
  ASSERT_TRUE(r.ok());
  for (int64_t j : {0, 1, 30, 59, 60}) {
    std::vector<double> column(static_cast<size_t>(j + 1));
    r->CopyColumn(j, j + 1, column.data());
    for (int64_t i = 0; i <= j; ++i) EXPECT_EQ(column[static_cast<size_t>(i)], r->At(i, j));
  }
}

TEST(FactorizeUpper, RepeatsBitForBit) {
  const Problem problem(150);
  ExecutionContext context;
  absl::StatusOr<UpperFactor> a = FactorizeUpper(problem.view(), context);
  absl::StatusOr<UpperFactor> b = FactorizeUpper(problem.view(), context);
  ASSERT_TRUE(a.ok() && b.ok());
  for (int64_t i = 0; i < 150; ++i) {
    for (int64_t j = i; j < 150; ++j) ASSERT_EQ(a->At(i, j), b->At(i, j));
  }
}

TEST(FactorizeUpper, RefusesWhatIsNotPositiveDefinite) {
  ExecutionContext context;
  for (double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    for (size_t where : {size_t{0}, size_t{57}, size_t{119}}) {
      Problem problem(120);
      problem.diagonal[where] = bad;
      EXPECT_EQ(FactorizeUpper(problem.view(), context).status().code(),
                absl::StatusCode::kFailedPrecondition)
          << bad << " at " << where;
    }
  }
  Problem problem(2);
  problem.values = {1, 2, 2, 1};
  problem.diagonal = {0.9, 0.9};  // off-diagonal 1: indefinite
  EXPECT_EQ(FactorizeUpper(problem.view(), context).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(FactorizeUpper, StopsWhenCancelled) {
  const Problem problem(100);
  ExecutionContext context;
  context.cancel.Cancel();
  EXPECT_EQ(FactorizeUpper(problem.view(), context).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace cholesky_test
}  // namespace ptqwatch::internal
