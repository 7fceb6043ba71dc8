#include "curvature/power_iteration.h"

#include <gmock/gmock.h>

#include "ATen/ops/full.h"
#include "ATen/ops/linspace.h"
#include "ATen/ops/zeros.h"
#include "base/status_macros.h"
#include "curvature/eigenpair.h"
#include "support/matrix_operator.h"

namespace ptqwatch::internal {
namespace power_iteration_test {

using ::testing::HasSubstr;
using testing::MatrixOperator;
using testing::MatrixWith;

at::Tensor Spectrum(double low, double high) {
  at::Tensor values = at::linspace(-0.2, 0.3, 80, at::kDouble);
  values[0] = low;
  values[79] = high;
  return values;
}

absl::StatusOr<HessianEigenpair> Find(MatrixOperator& matrix, EigenpairOptions options,
                                      const WarmStart& start = {}) {
  ExecutionContext context;
  PTQWATCH_ASSIGN_OR_RETURN(EigenpairSearch search,
                            ExtremeEigenpair(matrix, start, options, {}, context));
  return std::move(search.pair);
}

// Room for five vectors: too few for Lanczos.
EigenpairOptions Short(SpectrumEnd end) {
  return {.end = end, .residual_ratio = 1e-3, .max_products = 500, .max_bytes = 5 * 80 * 8};
}

TEST(PowerIteration, FindsBothEndsWhicheverIsLarger) {
  for (const auto& [low, high] : {std::pair{-1.0, 3.0}, {-3.0, 1.0}}) {
    MatrixOperator matrix(MatrixWith(Spectrum(low, high)));
    const auto top = Find(matrix, Short(SpectrumEnd::kTop));
    ASSERT_TRUE(top.ok()) << top.status();
    EXPECT_EQ(top->method, EigenvalueMethod::kPowerIteration);
    EXPECT_TRUE(top->converged);
    EXPECT_NEAR(top->value, high, 1e-3);
    EXPECT_GE(top->bound, high);
    EXPECT_LT(top->bound, 4 * high);
    const auto bottom = Find(matrix, Short(SpectrumEnd::kBottom));
    ASSERT_TRUE(bottom.ok()) << bottom.status();
    EXPECT_NEAR(bottom->value, low, 1e-3);
    EXPECT_LE(bottom->bound, low);
    EXPECT_LE(bottom->residual_ratio, 1e-3);
  }
}

TEST(PowerIteration, AWarmStartSavesProductsAndAStaleOneIsReported) {
  MatrixOperator matrix(MatrixWith(Spectrum(-1, 3)));
  const auto cold = Find(matrix, Short(SpectrumEnd::kTop));
  ASSERT_TRUE(cold.ok());
  EXPECT_EQ(cold->start, EigenvalueStart::kCold);
  const auto warm = Find(matrix, Short(SpectrumEnd::kTop), {{cold->vector}, {}});
  ASSERT_TRUE(warm.ok());
  EXPECT_EQ(warm->start, EigenvalueStart::kWarm);
  // No fewer, so that an eigenvalue that has overtaken the old one shows.
  EXPECT_EQ(warm->products, 10);
  const auto bottom = Find(matrix, Short(SpectrumEnd::kBottom));
  ASSERT_TRUE(bottom.ok());
  const auto stale = Find(matrix, Short(SpectrumEnd::kTop), {{bottom->vector}, {}});
  ASSERT_TRUE(stale.ok());
  EXPECT_EQ(stale->start, EigenvalueStart::kRestarted);
  EXPECT_NEAR(stale->value, 3, 1e-3);
}

TEST(PowerIteration, ReportsTheBytesIfThreeVectorsDoNotFit) {
  MatrixOperator matrix(MatrixWith(Spectrum(-1, 3)));
  EigenpairOptions options = Short(SpectrumEnd::kTop);
  options.max_bytes = 2 * 80 * 8;
  const absl::Status status = Find(matrix, options).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("1920 bytes for 3 vectors, the limit is 1280"));
  EXPECT_EQ(matrix.products, 0);

  ExecutionContext context;
  context.bytes = std::make_shared<ByteBudget>(1000);
  EXPECT_TRUE(absl::IsResourceExhausted(ExtremeEigenpair(matrix, {}, {}, {}, context).status()));
  EXPECT_EQ(context.bytes->used(), 0);
}

TEST(PowerIteration, AZeroHessianIsAStatus) {
  MatrixOperator matrix(at::zeros({80, 80}, at::kDouble));
  const absl::Status status = Find(matrix, Short(SpectrumEnd::kTop)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("every product with the Hessian is zero"));
}

TEST(PowerIteration, TakesASingleParameter) {
  for (const double value : {2.0, -2.0}) {
    MatrixOperator matrix(at::full({1, 1}, value, at::kDouble));
    ExecutionContext context;
    const auto search = PowerIteration(matrix, {}, {}, {}, context);
    ASSERT_TRUE(search.ok()) << search.status();
    EXPECT_DOUBLE_EQ(search->pair.value, value);
    EXPECT_TRUE(search->pair.converged);
  }
}

}  // namespace power_iteration_test
}  // namespace ptqwatch::internal
