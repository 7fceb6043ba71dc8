#include "curvature/loss_direction.h"

#include <gmock/gmock.h>

#include <cmath>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "support/tensor_surface.h"

namespace ptqwatch::internal {
namespace loss_direction_test {

using testing::TensorSurface;

// L = sum a_i x_i^2 / 2 + sum y_j^3 over x of 3 and y of 2, at x = 0.5, y = 1: g = (a x, 3 y^2),
// H = diag(a, 6 y).
struct Cubic {
  Cubic()
      : a(at::arange(1, 4, at::kDouble)),
        x(at::full({3}, 0.5, at::kDouble)),
        y(at::full({2}, 1.0, at::kDouble)),
        surface({{"x", x}, {"y", y}},
                [this](size_t) { return 0.5 * (a * x * x).sum() + y.pow(3).sum(); }) {
    d = surface.space().Zero();
    d.elements.fill_(0.1);
  }
  absl::StatusOr<HessianDirection> Along() {
    auto hessian = HessianOperator::Create(&surface, HessianMode::kRetainedGraph, context);
    EXPECT_TRUE(hessian.ok()) << hessian.status();
    return MeasureDirection(**hessian, d, context);
  }
  ExecutionContext context;
  at::Tensor a;
  at::Tensor x;
  at::Tensor y;
  TensorSurface surface;
  Vector d;
};

TEST(LossDirection, SplitsThePredictionIntoTermsAndParts) {
  Cubic cubic;
  const auto direction = cubic.Along();
  ASSERT_TRUE(direction.ok()) << direction.status();
  EXPECT_NEAR(direction->gradient_by_parameter[0], 0.1 * 0.5 * 6, 1e-12);
  EXPECT_NEAR(direction->gradient_by_parameter[1], 0.1 * 3 * 2, 1e-12);
  EXPECT_NEAR(direction->curvature_by_parameter[0], 0.005 * 6, 1e-12);
  EXPECT_NEAR(direction->curvature_by_parameter[1], 0.005 * 6 * 2, 1e-12);
  EXPECT_NEAR(direction->gradient_term, 0.9, 1e-12);
  EXPECT_NEAR(direction->curvature_term, 0.09, 1e-12);
  EXPECT_NEAR(direction->squared_norm, 0.05, 1e-12);
  EXPECT_NEAR(direction->Predict(2), 1.8 + 0.36, 1e-12);
  EXPECT_NEAR(direction->curvature, 0.18 / 0.05, 1e-12);
}

TEST(LossDirection, AlignmentIsTheSquaredCosine) {
  Cubic cubic;
  const VectorSpace& space = cubic.surface.space();
  Vector v = space.Zero();
  v.elements[4] = 1;
  EXPECT_NEAR(Alignment(space, v, cubic.d), 0.2, 1e-12);
  v.elements.copy_(cubic.d.elements / space.Norm(cubic.d));
  EXPECT_NEAR(Alignment(space, v, cubic.d), 1, 1e-12);
}

TEST(LossDirection, AZeroDirectionIsAStatus) {
  Cubic cubic;
  cubic.d.elements.zero_();
  EXPECT_EQ(cubic.Along().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(LossesAlong, EvaluatesTheLossAndPutsTheWeightsBack) {
  Cubic cubic;
  const auto losses = LossesAlong(cubic.surface, cubic.d, {-1, 0.5, 2}, cubic.context);
  ASSERT_TRUE(losses.ok()) << losses.status();
  const auto expected = [](double scale) {
    return 3 * std::pow(0.5 + 0.1 * scale, 2) + 2 * std::pow(1 + 0.1 * scale, 3);
  };
  EXPECT_NEAR((*losses)[0], expected(-1), 1e-12);
  EXPECT_NEAR((*losses)[1], expected(0.5), 1e-12);
  EXPECT_NEAR((*losses)[2], expected(2), 1e-12);
  EXPECT_EQ(cubic.x[0].item<double>(), 0.5);
  EXPECT_EQ(cubic.y[1].item<double>(), 1.0);
}

TEST(LossesAlong, ALossThatIsNotFiniteIsNan) {
  at::Tensor x = at::ones({2}, at::kDouble);
  TensorSurface surface({{"x", x}}, [&](size_t) { return x.log().sum(); });
  Vector d = surface.space().Zero();
  d.elements.fill_(-1);
  ExecutionContext context;
  const auto losses = LossesAlong(surface, d, {0.5, 2}, context);
  ASSERT_TRUE(losses.ok()) << losses.status();
  EXPECT_TRUE(std::isfinite((*losses)[0]));
  EXPECT_TRUE(std::isnan((*losses)[1]));
}

TEST(LossesAlong, PutsTheWeightsBackWhenCancelled) {
  Cubic cubic;
  cubic.context.cancel.Cancel();
  const auto losses = LossesAlong(cubic.surface, cubic.d, {1}, cubic.context);
  EXPECT_TRUE(absl::IsCancelled(losses.status()));
  EXPECT_EQ(cubic.x[0].item<double>(), 0.5);
}

}  // namespace loss_direction_test
}  // namespace ptqwatch::internal
