#include "curvature/spectrum.h"

#include <gmock/gmock.h>

#include <utility>

#include "ATen/ops/eye.h"
#include "ATen/ops/linspace.h"
#include "base/status_macros.h"
#include "support/matrix_operator.h"

namespace ptqwatch::internal {
namespace spectrum_test {

using testing::MatrixOperator;
using testing::MatrixWith;

at::Tensor Values() {
  at::Tensor values = at::linspace(-0.2, 0.3, 100, at::kDouble);
  values[0] = -1.5;
  values[97] = 2;
  values[98] = 3;
  values[99] = 4;
  return values;
}

absl::StatusOr<HessianSpectrum> Find(MatrixOperator& matrix, const SpectrumOptions& options,
                                     VectorMap& state) {
  PTQWATCH_ASSIGN_OR_RETURN(SpectrumSearch search, FindSpectrum(matrix, state, options, {}));
  state = std::move(search.next);
  return std::move(search.spectrum);
}

TEST(Spectrum, FindsTheLargestInOrderAndTheSmallest) {
  MatrixOperator matrix(MatrixWith(Values()));
  VectorMap state;
  const auto spectrum =
      Find(matrix, {.top = 3, .bottom = true, .search = {.residual_ratio = 1e-3}}, state);
  ASSERT_TRUE(spectrum.ok()) << spectrum.status();
  ASSERT_EQ(spectrum->top.size(), 3u);
  EXPECT_NEAR(spectrum->top[0].value, 4, 1e-4);
  EXPECT_NEAR(spectrum->top[1].value, 3, 1e-3);
  EXPECT_NEAR(spectrum->top[2].value, 2, 1e-3);
  EXPECT_NEAR(spectrum->bottom[0].value, -1.5, 1e-3);
  EXPECT_EQ(spectrum->products, matrix.products);
  for (const HessianEigenpair& pair : spectrum->top) {
    // The reported residual is the true one, with the part along the deflated vectors.
    ExecutionContext context;
    Vector rest = matrix.space().Zero();
    ASSERT_TRUE(matrix.Apply({pair.vector}, rest, context).ok());
    matrix.space().Axpy(-pair.value, {pair.vector}, rest);
    EXPECT_NEAR(matrix.space().Norm(rest) / pair.value, pair.residual_ratio, 1e-9);
  }
  EXPECT_TRUE(state.contains("top.2"));
  EXPECT_TRUE(state.contains("bottom.0"));
}

TEST(Spectrum, FindsAnEigenvalueWithItsMultiplicity) {
  at::Tensor values = Values();
  values[98] = 4;
  MatrixOperator matrix(MatrixWith(values));
  VectorMap state;
  const auto spectrum = Find(matrix, {.top = 3, .search = {.residual_ratio = 1e-3}}, state);
  ASSERT_TRUE(spectrum.ok()) << spectrum.status();
  EXPECT_NEAR(spectrum->top[0].value, 4, 1e-4);
  EXPECT_NEAR(spectrum->top[1].value, 4, 1e-3);
  EXPECT_NEAR(spectrum->top[2].value, 2, 1e-3);
}

TEST(Spectrum, AllEigenvaluesOfASmallSpaceAreFound) {
  MatrixOperator matrix(MatrixWith(at::linspace(-1, 1, 4, at::kDouble)));
  VectorMap state;
  const auto spectrum = Find(matrix, {.top = 10, .bottom = true}, state);
  ASSERT_TRUE(spectrum.ok()) << spectrum.status();
  ASSERT_EQ(spectrum->top.size(), 4u);
  EXPECT_NEAR(spectrum->top[3].value, -1, 1e-9);
  EXPECT_NEAR(spectrum->bottom[0].value, -1, 1e-9);
}

TEST(Spectrum, EverySearchStartsFromItsOwnVector) {
  MatrixOperator matrix(MatrixWith(Values()));
  VectorMap state;
  const SpectrumOptions options = {.top = 2, .bottom = true};
  const auto cold = Find(matrix, options, state);
  ASSERT_TRUE(cold.ok());
  const auto warm = Find(matrix, options, state);
  ASSERT_TRUE(warm.ok());
  EXPECT_LE(warm->products, cold->products);
  EXPECT_EQ(warm->top[1].start, EigenvalueStart::kWarm);
  EXPECT_EQ(warm->bottom[0].start, EigenvalueStart::kWarm);
  EXPECT_NEAR(warm->top[1].value, 3, 0.03);
}

TEST(Spectrum, LaterSearchesHaveRoomInATightBudget) {
  MatrixOperator matrix(MatrixWith(Values()));
  VectorMap state;
  SpectrumOptions options = {.top = 2, .bottom = true};
  options.search.max_products = 300;
  options.search.max_bytes = (MinSearchVectors(matrix.space()) + 2) * matrix.space().bytes();
  const auto spectrum = Find(matrix, options, state);
  ASSERT_TRUE(spectrum.ok()) << spectrum.status();
  EXPECT_EQ(spectrum->top[1].method, EigenvalueMethod::kLanczos);
  EXPECT_EQ(spectrum->bottom[0].method, EigenvalueMethod::kLanczos);
  EXPECT_NEAR(spectrum->top[1].value, 3, 0.03);
  EXPECT_NEAR(spectrum->bottom[0].value, -1.5, 0.02);
}

TEST(Spectrum, TheResidualOfTheFirstVectorDoesNotKeepTheSecondSearchGoing) {
  at::Tensor values = Values();
  values[99] = 100;
  values[98] = 10;
  MatrixOperator matrix(MatrixWith(values));
  VectorMap state;
  const auto spectrum = Find(matrix, {.top = 2}, state);
  ASSERT_TRUE(spectrum.ok()) << spectrum.status();
  EXPECT_LT(spectrum->top[1].products, 20);
  EXPECT_NEAR(spectrum->top[1].value, 10, 0.1);
}

TEST(Spectrum, IsRefusedBeforeTheFirstProductIfALaterSearchWouldNotFit) {
  MatrixOperator matrix(MatrixWith(Values()));
  SpectrumOptions options = {.top = 2, .bottom = true};
  options.search.max_bytes = (MinSearchVectors(matrix.space()) + 2) * matrix.space().bytes();
  EXPECT_TRUE(CheckSpectrumMemory(matrix.space(), options, {}).ok());
  options.search.max_bytes -= 1;
  VectorMap state;
  const absl::Status status = Find(matrix, options, state).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("6400 bytes for 8 vectors, the limit is 6399"));
  EXPECT_EQ(matrix.products, 0);
}

TEST(Spectrum, TheIdentityHasNothingElse) {
  MatrixOperator matrix(at::eye(20, at::kDouble));
  VectorMap state;
  const auto spectrum = Find(matrix, {.top = 2, .bottom = true}, state);
  ASSERT_TRUE(spectrum.ok()) << spectrum.status();
  EXPECT_NEAR(spectrum->top[0].value, 1, 1e-12);
  EXPECT_NEAR(spectrum->top[1].value, 1, 1e-12);
  EXPECT_NEAR(spectrum->bottom[0].value, 1, 1e-12);
}

}  // namespace spectrum_test
}  // namespace ptqwatch::internal
