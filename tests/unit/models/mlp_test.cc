#include "models/mlp.h"

#include <gtest/gtest.h>

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

}  // namespace mlp_test
}  // namespace ptqwatch::internal
