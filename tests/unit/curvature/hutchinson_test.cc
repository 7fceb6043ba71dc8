#include "curvature/hutchinson.h"

#include <gmock/gmock.h>

#include <cmath>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/full.h"
#include "ATen/ops/mv.h"
#include "curvature/hessian_operator.h"
#include "support/tensor_surface.h"

namespace ptqwatch::internal {
namespace {

using testing::TensorSurface;

// loss = z' A z / 2 with z the concatenation of two parameters and A dense and symmetric.
struct Dense {
  Dense()
      : x(at::full({10}, 0.3, at::kDouble)),
        y(at::full({4, 5}, -0.2, at::kDouble)),
        surface({{"x", x}, {"y", y}}, [this](size_t) {
          const at::Tensor z = at::cat({x, y.flatten()});
          return 0.5 * z.dot(at::mv(a, z));
        }) {
    at::Tensor raw = at::arange(900, at::kDouble).view({30, 30});
    raw = (raw * 12.9898).sin() * 0.5;
    a = raw + raw.t();
    a.diagonal().add_(3);
    auto created = HessianOperator::Create(context, &surface, HessianMode::kRetainedGraph);
    EXPECT_TRUE(created.ok()) << created.status();
    hessian = *std::move(created);
  }
  TraceEstimate Estimate(const HutchinsonOptions& options, uint64_t seed = 0,
                         std::vector<double> weights = {2, 0.5}) {
    context.seeds = SeedSource(seed);
    auto estimate = EstimateTrace(context, *hessian, weights, options);
    EXPECT_TRUE(estimate.ok()) << estimate.status();
    return *std::move(estimate);
  }
  double TrueTrace() const { return a.trace().item<double>(); }

  ExecutionContext context;
  at::Tensor a;
  at::Tensor x;
  at::Tensor y;
  TensorSurface surface;
  std::unique_ptr<HessianOperator> hessian;
};

TEST(Hutchinson, PartsSumUpToTheWholeAndTheWeightedTraceFollowsThem) {
  Dense dense;
  const TraceEstimate estimate = dense.Estimate({});
  ASSERT_EQ(estimate.by_part.size(), 2u);
  EXPECT_NEAR(estimate.by_part[0].value + estimate.by_part[1].value, estimate.trace.value, 1e-9);
  EXPECT_NEAR(2 * estimate.by_part[0].value + 0.5 * estimate.by_part[1].value,
              estimate.weighted.value, 1e-9);
}

TEST(Hutchinson, StandardErrorCoversTheTrueTrace) {
  Dense dense;
  HutchinsonOptions options;
  options.relative_stderr = 0;
  options.max_probes = 16;
  int covered = 0;
  constexpr int kSeeds = 400;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const TraceEstimate estimate = dense.Estimate(options, seed);
    // Student's t with 15 degrees of freedom.
    covered +=
        std::abs(estimate.trace.value - dense.TrueTrace()) <= 2.131 * estimate.trace.stderr_value;
  }
  EXPECT_GE(covered, 0.92 * kSeeds);
  EXPECT_LE(covered, 0.98 * kSeeds);
}

TEST(Hutchinson, StopsWhenThePrecisionIsReached) {
  Dense dense;
  HutchinsonOptions options;
  options.relative_stderr = 0.5;
  EXPECT_EQ(dense.Estimate(options).probes, 8);
  options.relative_stderr = 0.02;
  options.max_probes = 2000;
  const TraceEstimate fine = dense.Estimate(options);
  EXPECT_GT(fine.probes, 8);
  EXPECT_LT(fine.probes, 2000);
  EXPECT_LE(fine.trace.stderr_value, 0.02 * fine.trace.value);
  options.relative_stderr = 1e-9;
  options.max_probes = 9;
  EXPECT_EQ(dense.Estimate(options).probes, 9);
}

TEST(Hutchinson, DrawsTheSameProbesForTheSameSeed) {
  Dense dense;
  EXPECT_EQ(dense.Estimate({}, 5).trace.value, dense.Estimate({}, 5).trace.value);
  EXPECT_NE(dense.Estimate({}, 5).trace.value, dense.Estimate({}, 6).trace.value);
}

TEST(Hutchinson, EndsWhenCancelled) {
  Dense dense;
  dense.context.cancel.Cancel();
  EXPECT_TRUE(absl::IsCancelled(EstimateTrace(dense.context, *dense.hessian, {1, 1}, {}).status()));
}

}  // namespace
}  // namespace ptqwatch::internal
