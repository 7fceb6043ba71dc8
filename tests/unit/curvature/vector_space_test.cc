#include "curvature/vector_space.h"

#include <gmock/gmock.h>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"

namespace ptqwatch::internal {
namespace vector_space_test {

using ::testing::ElementsAre;

VectorSpace TwoParts(at::ScalarType dtype = at::kFloat) {
  return VectorSpace({{"a", at::zeros({2, 3})}, {"b", at::zeros({70})}}, dtype, at::kCPU);
}

TEST(VectorSpace, ViewsSharePartsOfTheVector) {
  const VectorSpace space = TwoParts();
  Vector x = space.Zero();
  space.View(x, 0).fill_(2);
  space.View(x, 1).fill_(3);
  EXPECT_EQ(space.dimension(), 76);
  EXPECT_THAT(space.DotByPiece(x, x), ElementsAre(6 * 4, 70 * 9));
  EXPECT_EQ(space.View(x, 0).sizes().vec(), (std::vector<int64_t>{2, 3}));
}

TEST(VectorSpace, DotAccumulatesInFloat64) {
  const VectorSpace space({{"a", at::zeros({1 << 20})}}, at::kFloat, at::kCPU);
  Vector ones = space.Zero();
  ones.elements.fill_(1);
  Vector x = space.Zero();
  x.elements.fill_(0.1f);
  // A float32 sum of a million tenths is off in its fourth digit.
  EXPECT_NEAR(space.Dot(ones, x), 0.1f * double{1 << 20}, 1e-6);
}

TEST(VectorSpace, AxpyScaleAndCopyLeaveTheOtherVectorAlone) {
  const VectorSpace space = TwoParts(at::kDouble);
  Vector x = space.Zero();
  x.elements.copy_(at::arange(76));
  Vector y = space.Copy(x);
  space.Axpy(-0.5, x, y);
  space.Scale(2, y);
  EXPECT_TRUE(at::equal(y.elements, x.elements));
  EXPECT_NEAR(space.Norm(x), std::sqrt(space.Dot(x, x)), 1e-12);
}

TEST(VectorSpace, SignsAreAFunctionOfTheSeedAndTheIndexAlone) {
  const VectorSpace space = TwoParts();
  const VectorSpace wide = TwoParts(at::kDouble);
  Vector x = space.Zero();
  Vector again = space.Zero();
  Vector other = space.Zero();
  Vector doubles = wide.Zero();
  space.FillRademacher(7, x);
  space.FillRademacher(7, again);
  space.FillRademacher(8, other);
  wide.FillRademacher(7, doubles);
  EXPECT_TRUE(at::equal(x.elements, again.elements));
  EXPECT_FALSE(at::equal(x.elements, other.elements));
  EXPECT_TRUE(at::equal(x.elements.to(at::kDouble), doubles.elements));
  EXPECT_TRUE(at::equal(x.elements.abs(), at::full({76}, 1.0f)));
}

TEST(VectorSpace, SignsAreBalancedAndSeedsAreIndependent) {
  const VectorSpace space({{"a", at::zeros({1 << 16})}}, at::kFloat, at::kCPU);
  Vector x = space.Zero();
  Vector y = space.Zero();
  Vector ones = space.Zero();
  ones.elements.fill_(1);
  space.FillRademacher(1, x);
  space.FillRademacher(2, y);
  // Standard deviation 256.
  EXPECT_LT(std::abs(space.Dot(ones, x)), 4 * 256);
  EXPECT_LT(std::abs(space.Dot(x, y)), 4 * 256);
}

TEST(VectorSpace, KnowsWhatIsNotFinite) {
  const VectorSpace space = TwoParts();
  Vector x = space.Zero();
  EXPECT_TRUE(space.IsFinite(x));
  x.elements[75] = NAN;
  EXPECT_FALSE(space.IsFinite(x));
}

}  // namespace vector_space_test
}  // namespace ptqwatch::internal
