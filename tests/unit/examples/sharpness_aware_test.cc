#include "sharpness_aware.h"

#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/dot.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"
#include "gtest/gtest.h"

namespace ptqwatch::examples {
namespace sharpness_aware_test {

// L = v'Hv / 2 of v = [a b].
struct Quadratic {
  at::Tensor hessian = at::tensor({2.0, 0.5, 0.5, 3.0}, at::kDouble).view({2, 2});
  at::Tensor a = at::tensor({0.7}, at::kDouble).set_requires_grad(true);
  at::Tensor b = at::tensor({-1.3}, at::kDouble).set_requires_grad(true);

  at::Tensor Loss() const {
    const at::Tensor v = at::cat({a, b});
    return at::dot(v, at::matmul(hessian, v)) / 2;
  }
};

TEST(TakeGradientsUphill, TakesThemAtTheUphillNeighbour) {
  const Quadratic toy;
  const at::Tensor v = at::tensor({0.7, -1.3}, at::kDouble);
  const at::Tensor gradient = at::matmul(toy.hessian, v);
  const at::Tensor expected =
      at::matmul(toy.hessian, v + 0.25 * gradient / gradient.norm().item<double>());
  toy.Loss().backward();
  TakeGradientsUphill({toy.a, toy.b}, 0.25, [&] { return toy.Loss(); });
  EXPECT_NEAR(toy.a.grad().item<double>(), expected[0].item<double>(), 1e-12);
  EXPECT_NEAR(toy.b.grad().item<double>(), expected[1].item<double>(), 1e-12);
  EXPECT_EQ(toy.a.item<double>(), 0.7);
  EXPECT_EQ(toy.b.item<double>(), -1.3);
}

TEST(TakeGradientsUphill, LeavesAZeroGradientAlone) {
  const at::Tensor w = at::zeros({3}, at::kDouble).set_requires_grad(true);
  int calls = 0;
  const auto loss = [&] {
    ++calls;
    return w.pow(2).sum();
  };
  loss().backward();
  TakeGradientsUphill({w}, 0.25, loss);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(at::equal(w.grad(), at::zeros({3}, at::kDouble)));
}

}  // namespace sharpness_aware_test
}  // namespace ptqwatch::examples
