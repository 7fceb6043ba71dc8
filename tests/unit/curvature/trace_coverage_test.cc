// Whether the 95 % interval of a trace is one.

#include <gmock/gmock.h>

#include <cmath>

#include "ATen/ops/linspace.h"
#include "ATen/ops/zeros.h"
#include "curvature/hutchinson.h"
#include "curvature/spectrum.h"
#include "support/matrix_operator.h"

namespace ptqwatch::internal {
namespace trace_coverage_test {

using testing::MatrixOperator;
using testing::MatrixWith;

constexpr int kSeeds = 1000;
constexpr int64_t kDimension = 120;

// A bulk on both sides of zero and a few outliers, the largest of which has most of the trace: z'Hz
// is as skewed as it gets.
at::Tensor HessianLike(double largest) {
  at::Tensor values = at::linspace(-0.3, 0.5, kDimension, at::kDouble);
  values[kDimension - 1] = largest;
  values[kDimension - 2] = largest / 3;
  values[kDimension - 3] = largest / 5;
  return MatrixWith(values);
}

struct Coverage {
  int covered = 0;
  double probes = 0;  // mean
  double stderr_ratio = 0;
};

Coverage Cover(const at::Tensor& matrix, const HutchinsonOptions& options, bool deflate) {
  MatrixOperator hessian(matrix);
  const double truth = matrix.trace().item<double>();
  Coverage coverage;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    ExecutionContext context;
    context.seeds = SeedSource(seed);
    KrylovSpace known;
    if (deflate) {
      absl::StatusOr<SpectrumSearch> found =
          FindSpectrum(hessian, {}, {.search = {.residual_ratio = 0.05}}, context);
      EXPECT_TRUE(found.ok()) << found.status();
      known = std::move(found->krylov);
    }
    const auto trace = EstimateTrace(hessian, {1.0}, known, options, context);
    EXPECT_TRUE(trace.ok()) << trace.status();
    coverage.covered += std::abs(trace->trace - truth) <= trace->trace_interval;
    coverage.probes += static_cast<double>(trace->probes) / kSeeds;
    coverage.stderr_ratio += trace->trace_stderr / truth / kSeeds;
  }
  return coverage;
}

TEST(TraceCoverage, AFixedNumberOfProbes) {
  for (const double largest : {3.0, 12.0}) {
    const Coverage coverage =
        Cover(HessianLike(largest), {.min_probes = 8, .max_probes = 8}, /*deflate=*/true);
    EXPECT_GE(coverage.covered, 0.92 * kSeeds) << largest;
    EXPECT_LE(coverage.covered, 0.985 * kSeeds) << largest;
  }
}

TEST(TraceCoverage, AsManyProbesAsThePrecisionTakes) {
  for (const double relative : {0.1, 0.05}) {
    const Coverage coverage =
        Cover(HessianLike(12), {.relative_stderr = relative, .max_probes = 200}, /*deflate=*/true);
    EXPECT_GE(coverage.covered, 0.92 * kSeeds) << relative;
    EXPECT_LE(coverage.covered, 0.985 * kSeeds) << relative;
    EXPECT_GT(coverage.probes, 8) << relative;
    EXPECT_LT(coverage.probes, 150) << relative;
  }
}

TEST(TraceCoverage, WhatIsKnownOfTheHessianTakesTheVarianceOut) {
  const HutchinsonOptions fixed = {.min_probes = 8, .max_probes = 8};
  const Coverage plain = Cover(HessianLike(12), fixed, /*deflate=*/false);
  const Coverage deflated = Cover(HessianLike(12), fixed, /*deflate=*/true);
  EXPECT_LT(deflated.stderr_ratio, 0.4 * plain.stderr_ratio);
  // Without it the skew of z'Hz leaves the interval too short.
  EXPECT_GT(deflated.covered, plain.covered);
}

}  // namespace trace_coverage_test
}  // namespace ptqwatch::internal
