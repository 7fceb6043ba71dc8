#include "curvature/critical_sharpness.h"

#include <gmock/gmock.h>

#include <cmath>
#include <string>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/full.h"
#include "support/tensor_surface.h"

namespace ptqwatch::internal {
namespace critical_sharpness_test {

using ::testing::HasSubstr;
using testing::TensorSurface;

// L = 3 + sum lambda_i x_i^2 / 2 with lambda = 1, 2, 3, at x = 0.5.
struct Quadratic {
  Quadratic()
      : lambda(at::arange(1, 4, at::kDouble)),
        x(at::full({3}, 0.5, at::kDouble)),
        surface({{"x", x}}, [this](size_t) { return 3 + 0.5 * (lambda * x * x).sum(); }) {
    d = surface.space().Zero();
  }
  at::Tensor lambda;
  at::Tensor x;
  TensorSurface surface;
  Vector d;
};

TEST(FindCriticalSharpness, IsTheEigenvalueAlongAnEigenvector) {
  for (int i = 0; i < 3; ++i) {
    for (const double length : {0.2, -0.05}) {
      Quadratic quadratic;
      quadratic.d.elements[i] = length;
      const auto found = FindCriticalSharpness(quadratic.surface, quadratic.d, {});
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_NEAR(found->sharpness, i + 1, 1e-9);
      EXPECT_NEAR(found->rate, 2.0 / (i + 1), 1e-9);
      // The loss is symmetric about 0.
      EXPECT_NEAR(found->scale * length, -1, 1e-9);
      EXPECT_LE(found->loss_evaluations, 4);
      EXPECT_EQ(quadratic.x[i].item<double>(), 0.5);
    }
  }
}

TEST(FindCriticalSharpness, IsTheCurvatureAlongADirection) {
  Quadratic quadratic;
  quadratic.d.elements[0] = 0.3;
  quadratic.d.elements[1] = -0.1;
  quadratic.d.elements[2] = 0.2;
  const auto found = FindCriticalSharpness(quadratic.surface, quadratic.d, {});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_NEAR(found->sharpness, (0.09 + 2 * 0.01 + 3 * 0.04) / 0.14, 1e-9);
  // -2 g'd / d'Hd: as far as the slope along d happens to be large.
  EXPECT_NEAR(found->scale, -2 * (0.5 * 0.3 - 1.0 * 0.1 + 1.5 * 0.2) / (0.09 + 0.02 + 0.12), 1e-9);
}

// L = e^x - x, at x0.
struct Exponential {
  explicit Exponential(double x0)
      : x(at::full({1}, x0, at::kDouble)),
        surface({{"x", x}}, [this](size_t) { return (x.exp() - x).sum(); }) {
    d = surface.space().Zero();
  }
  at::Tensor x;
  TensorSurface surface;
  Vector d;
};

TEST(FindCriticalSharpness, FindsWhereTheLossReturnsWithoutAQuadratic) {
  for (const double x0 : {1.0, -1.0}) {
    Exponential toy(x0);
    toy.d.elements.fill_(0.2);
    // The other x with this loss, by bisection.
    const double loss = std::exp(x0) - x0;
    double inner = 0;
    double outer = x0 > 0 ? -4 : 4;
    for (int i = 0; i < 60; ++i) {
      const double middle = (inner + outer) / 2;
      (std::exp(middle) - middle < loss ? inner : outer) = middle;
    }
    const auto found = FindCriticalSharpness(toy.surface, toy.d, {});
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_NEAR(x0 + 0.2 * found->scale, inner, 0.01 * std::abs(inner - x0));
    const double slope = std::exp(x0) - 1;
    EXPECT_NEAR(found->rate, std::abs((inner - x0) / slope), 0.02 * found->rate);
    EXPECT_LT(found->loss_evaluations, 10);
  }
}

TEST(FindCriticalSharpness, SaysWhyThereIsNone) {
  const auto refusal = [](TensorSurface& surface, const Vector& d) {
    const absl::Status status = FindCriticalSharpness(surface, d, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  Quadratic quadratic;
  EXPECT_THAT(refusal(quadratic.surface, quadratic.d), HasSubstr("the squared norm 0"));
  Exponential minimum(0);
  minimum.d.elements.fill_(1e-3);
  EXPECT_THAT(refusal(minimum.surface, minimum.d), HasSubstr("is rounding"));
  at::Tensor x = at::full({1}, 0.5, at::kDouble);
  TensorSurface straight({{"x", x}}, [&](size_t) { return x.sum(); });
  Vector d = straight.space().Zero();
  d.elements.fill_(0.1);
  // From the first guess, a quarter, by five factors of two.
  EXPECT_THAT(refusal(straight, d), HasSubstr("does not rise again within 8 times"));
  EXPECT_EQ(x.item<double>(), 0.5);
}

TEST(FindCriticalSharpness, EndsWhenItIsCancelled) {
  Quadratic quadratic;
  quadratic.d.elements[0] = 0.1;
  ExecutionContext context;
  context.cancel.Cancel();
  EXPECT_EQ(FindCriticalSharpness(quadratic.surface, quadratic.d, context).status().code(),
            absl::StatusCode::kCancelled);
}

}  // namespace critical_sharpness_test
}  // namespace ptqwatch::internal
