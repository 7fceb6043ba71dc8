#include "models/mlp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ATen/core/Tensor.h"
#include "ATen/ops/tensor.h"

namespace ptqwatch::internal {
namespace mlp_test {

TEST(MlpTest, ActivationsAreTheirFormulas) {
  const XieluTensors xielu = {.alpha_p = at::tensor({0.7f}),
                              .alpha_n = at::tensor({-0.4f}),
                              .beta = at::tensor(0.5f),
                              .eps = at::tensor(-1e-6f)};
  const double alpha_p = std::log1p(std::exp(0.7)), alpha_n = 0.5 + std::log1p(std::exp(-0.4));
  for (const double x : {-30.0, -2.0, -0.5, -1e-3, 0.0, 1e-3, 0.5, 2.0, 30.0}) {
    const at::Tensor input = at::tensor({static_cast<float>(x)});
    const auto value = [&](Activation activation) {
      return Activate(activation, input, xielu).item<double>();
    };
    const double tolerance = 1e-6 * (1 + x * x);
    EXPECT_NEAR(value(Activation::kGelu), x * 0.5 * (1 + std::erf(x / std::sqrt(2.0))), tolerance);
    EXPECT_NEAR(value(Activation::kSilu), x / (1 + std::exp(-x)), tolerance);
    const double gelu =
        0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    EXPECT_NEAR(value(Activation::kGeluNew), gelu, tolerance);
    EXPECT_NEAR(value(Activation::kGeluTanh), gelu, tolerance);
    EXPECT_NEAR(value(Activation::kXielu),
                x > 0 ? alpha_p * x * x + 0.5 * x : (std::expm1(x) - x) * alpha_n + 0.5 * x,
                2 * tolerance);
  }
}

TEST(MlpTest, ClampedGatesAreEvenAndUpsOddOutputs) {
  const double gates[] = {-9, 0.4, 3}, ups[] = {1.5, -4, 0.2};
  const at::Tensor gate_up = at::tensor({-9.0f, 1.5f, 0.4f, -4.0f, 3.0f, 0.2f}).view({1, 6});
  const at::Tensor result = ApplyClampedGate({.alpha = 1.7, .limit = 2}, gate_up);
  ASSERT_EQ(result.sizes(), at::IntArrayRef({1, 3}));
  for (int i = 0; i < 3; ++i) {
    const double gate = std::min(gates[i], 2.0), up = std::clamp(ups[i], -2.0, 2.0);
    EXPECT_NEAR(result[0][i].item<double>(), (up + 1) * gate / (1 + std::exp(-1.7 * gate)), 1e-6);
  }
}

}  // namespace mlp_test
}  // namespace ptqwatch::internal
