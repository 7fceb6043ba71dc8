#include "curvature/hutchinson.h"

#include <gmock/gmock.h>

#include <cmath>
#include <optional>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/full.h"
#include "ATen/ops/linspace.h"
#include "ATen/ops/mv.h"
#include "ATen/ops/zeros.h"
#include "base/student_quantile.h"
#include "curvature/eigenpair.h"
#include "curvature/hessian_operator.h"
#include "support/matrix_operator.h"
#include "support/tensor_surface.h"

namespace ptqwatch::internal {
namespace hutchinson_test {

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
    at::Tensor values = at::linspace(0, 1, 30, at::kDouble);
    values[29] = 40;
    values[28] = -8;
    a = testing::MatrixWith(values);
    auto created = HessianOperator::Create(&surface, HessianMode::kRetainedGraph, context);
    EXPECT_TRUE(created.ok()) << created.status();
    hessian = *std::move(created);
  }
  HessianTrace Estimate(const HutchinsonOptions& options, uint64_t seed = 0,
                        std::vector<double> weights = {2, 0.5}) {
    context.seeds = SeedSource(seed);
    auto estimate = EstimateTrace(*hessian, weights, {}, options, context);
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
  const HessianTrace estimate = dense.Estimate({});
  ASSERT_EQ(estimate.parameters.size(), 2u);
  EXPECT_NEAR(estimate.parameters[0].trace + estimate.parameters[1].trace, estimate.trace, 1e-9);
  EXPECT_NEAR(2 * estimate.parameters[0].trace + 0.5 * estimate.parameters[1].trace,
              estimate.weighted_trace, 1e-9);
}

TEST(Hutchinson, WhatIsKnownOfTheHessianIsSplitByPart) {
  Dense dense;
  HutchinsonOptions options;
  options.max_probes = 2000;
  options.relative_stderr = 0.002;
  const HessianTrace plain = dense.Estimate(options);
  const auto search = ExtremeEigenpair(*dense.hessian, {}, {}, {}, dense.context);
  ASSERT_TRUE(search.ok()) << search.status();
  const std::vector<double> weights = {2, 0.5};
  const auto deflated =
      EstimateTrace(*dense.hessian, weights, search->krylov, options, dense.context);
  ASSERT_TRUE(deflated.ok()) << deflated.status();
  EXPECT_TRUE(deflated->converged);
  EXPECT_LT(deflated->probes, plain.probes / 2);
  const double first = dense.a.narrow(0, 0, 10).narrow(1, 0, 10).trace().item<double>();
  EXPECT_NEAR(deflated->parameters[0].trace, first, 4 * deflated->parameters[0].trace_stderr);
  EXPECT_NEAR(deflated->trace, dense.TrueTrace(), 4 * deflated->trace_stderr);
  EXPECT_NEAR(deflated->weighted_trace, 2 * first + 0.5 * (dense.TrueTrace() - first),
              4 * deflated->weighted_trace_stderr);
}

TEST(Hutchinson, WhatIsKnownWhollyNeedsNoProbes) {
  Dense dense;
  EigenpairOptions exact;
  exact.residual_ratio = 1e-12;
  exact.max_products = 31;
  exact.max_bytes = int64_t{1} << 20;
  // At most 24 vectors are kept, so that all but a few of the 30 dimensions are known.
  const auto all = ExtremeEigenpair(*dense.hessian, {}, exact, {}, dense.context);
  ASSERT_TRUE(all.ok()) << all.status();
  const auto trace = EstimateTrace(*dense.hessian, {1, 1}, all->krylov, {}, dense.context);
  ASSERT_TRUE(trace.ok());
  EXPECT_LT(trace->trace_stderr, 0.2 * dense.Estimate({}).trace_stderr);
}

TEST(Hutchinson, LayersAreParametersOfOneModule) {
  const at::Tensor matrix = testing::MatrixWith(at::arange(1, 7, at::kDouble));
  testing::MatrixOperator hessian(matrix, {{"a.norm.weight", matrix[0].narrow(0, 0, 2)},
                                           {"a.norm.bias", matrix[0].narrow(0, 2, 1)},
                                           {"a.up.weight", matrix[0].narrow(0, 3, 3)}});
  ExecutionContext context;
  const auto estimate = EstimateTrace(hessian, {1, 1, 1}, {}, {}, context);
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  ASSERT_EQ(estimate->layers.size(), 2u);
  EXPECT_EQ(estimate->layers[0].name, "a.norm");
  EXPECT_NEAR(estimate->layers[0].trace,
              estimate->parameters[0].trace + estimate->parameters[1].trace, 1e-12);
  EXPECT_EQ(estimate->layers[1].name, "a.up");
}

// loss = sum over batches b of share_b factor_b x'x / 2: every probe vector gives the exact traces.
std::optional<double> BatchStderr(const std::vector<double>& factors) {
  at::Tensor x = at::full({10}, 0.3, at::kDouble);
  TensorSurface surface(
      {{"x", x}},
      [&](size_t b) { return x.dot(x) * (factors[b] / 2 / static_cast<double>(factors.size())); },
      factors.size());
  ExecutionContext context;
  auto hessian = HessianOperator::Create(&surface, HessianMode::kRetainedGraph, context);
  EXPECT_TRUE(hessian.ok()) << hessian.status();
  const auto trace = EstimateTrace(**hessian, {1.0}, {}, {}, context);
  EXPECT_TRUE(trace.ok()) << trace.status();
  return trace->trace_batch_stderr;
}

TEST(Hutchinson, TheErrorOfTheDataIsThatOfAMeanOverBatches) {
  EXPECT_FALSE(BatchStderr({3}));
  EXPECT_NEAR(BatchStderr({3, 3, 3}).value_or(0), 0, 1e-6);
  // Traces of 10, 20, 30 and 60: mean 30, variance 1400 / 3, of the mean a quarter of that.
  EXPECT_NEAR(*BatchStderr({1, 2, 3, 6}), std::sqrt(1400.0 / 12), 1e-6);
}

TEST(Hutchinson, ProbeVectorsDoNotCountAsDifferencesOfTheData) {
  // Four batches whose Hessians have the same trace and are not diagonal: all that differs between
  // them is due to the probe vectors.
  std::vector<at::Tensor> matrices;
  for (int b = 0; b < 4; ++b) {
    const at::Tensor matrix = testing::MatrixWith(at::linspace(0, 1, 30, at::kDouble));
    matrices.push_back(matrix.roll({b * 5, b * 5}, {0, 1}));
  }
  at::Tensor x = at::full({30}, 0.3, at::kDouble);
  TensorSurface surface(
      {{"x", x}}, [&](size_t b) { return x.dot(at::mv(matrices[b], x)) / 8; }, 4);
  ExecutionContext context;
  auto hessian = HessianOperator::Create(&surface, HessianMode::kRetainedGraph, context);
  ASSERT_TRUE(hessian.ok()) << hessian.status();
  const auto trace = EstimateTrace(
      **hessian, {1.0}, {}, {.relative_stderr = 0, .min_probes = 200, .max_probes = 200}, context);
  ASSERT_TRUE(trace.ok()) << trace.status();
  // Uncorrected, it would be about the spread of a batch's own estimate.
  EXPECT_LT(trace->trace_batch_stderr.value_or(0), 2 * trace->trace_stderr);
  EXPECT_NE(trace->trace_batch_stderr, 0.0) << "it is unknown then";
}

TEST(Hutchinson, AZeroHessianIsAStatus) {
  testing::MatrixOperator zero(at::zeros({10, 10}, at::kDouble));
  ExecutionContext context;
  EXPECT_EQ(EstimateTrace(zero, {1}, {}, {}, context).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(zero.products, 3);
}

TEST(Hutchinson, QuantilesOfStudent) {
  EXPECT_NEAR(StudentQuantile(7), 2.3646, 0.005);
  EXPECT_NEAR(StudentQuantile(15), 2.1314, 0.001);
  EXPECT_NEAR(StudentQuantile(1000), 1.9623, 0.0005);
}

TEST(Hutchinson, StopsWhenThePrecisionIsReached) {
  Dense dense;
  HutchinsonOptions options;
  options.relative_stderr = 2;
  EXPECT_EQ(dense.Estimate(options).probes, 8);
  options.relative_stderr = 0.05;
  options.max_probes = 2000;
  const HessianTrace fine = dense.Estimate(options);
  EXPECT_GT(fine.probes, 8);
  EXPECT_LT(fine.probes, 2000);
  EXPECT_LE(fine.trace_stderr, 0.05 * fine.trace);
  options.relative_stderr = 1e-9;
  options.max_probes = 9;
  EXPECT_EQ(dense.Estimate(options).probes, 9);
}

TEST(Hutchinson, DrawsTheSameProbesForTheSameSeed) {
  Dense dense;
  EXPECT_EQ(dense.Estimate({}, 5).trace, dense.Estimate({}, 5).trace);
  EXPECT_NE(dense.Estimate({}, 5).trace, dense.Estimate({}, 6).trace);
}

TEST(Hutchinson, EndsWhenCancelled) {
  Dense dense;
  dense.context.cancel.Cancel();
  EXPECT_TRUE(
      absl::IsCancelled(EstimateTrace(*dense.hessian, {1, 1}, {}, {}, dense.context).status()));
}

}  // namespace hutchinson_test
}  // namespace ptqwatch::internal
