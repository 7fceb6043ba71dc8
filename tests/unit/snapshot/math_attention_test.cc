#include "snapshot/math_attention.h"

#include <gmock/gmock.h>

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/autocast_mode.h"
#include "ATen/ops/allclose.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/rand.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/scaled_dot_product_attention.h"
#include "snapshot/own_draws.h"
#include "torch/csrc/autograd/autograd.h"

namespace ptqwatch::internal {
namespace math_attention_test {

using torch::autograd::grad;

// Query, key and value: two sequences of 7 tokens, four heads of 8.
struct Inputs {
  explicit Inputs(at::ScalarType dtype = at::kFloat, int64_t key_heads = 4)
      : query(Make({2, 4, 7, 8}, dtype)),
        key(Make({2, key_heads, 7, 8}, dtype)),
        value(Make({2, key_heads, 7, 8}, dtype)) {}
  static at::Tensor Make(at::IntArrayRef sizes, at::ScalarType dtype) {
    return at::randn(sizes).to(dtype).requires_grad_();
  }
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
};
using Attention = std::function<at::Tensor(const Inputs&)>;

at::Tensor Causal(const Inputs& in) {
  return at::scaled_dot_product_attention(in.query, in.key, in.value, {}, 0.0, true);
}

// A derivative of the gradient of a loss. Throws if there is none.
at::Tensor SecondDerivative(const Attention& attention, const Inputs& in) {
  const at::Tensor loss = attention(in).to(at::kFloat).square().sum();
  const at::Tensor first = grad({loss}, {in.query}, {}, true, true)[0];
  return grad({first.to(at::kFloat).square().sum()}, {in.key})[0];
}

TEST(MathAttention, EqualsTheFusedKernelsAndHasASecondDerivative) {
  const at::Tensor allowed = at::rand({2, 1, 7, 7}) > 0.3;
  allowed.select(3, 0).fill_(true);
  const at::Tensor added = at::randn({1, 4, 7, 7});
  const std::vector<std::pair<Inputs, Attention>> cases = {
      {Inputs(), Causal},
      {Inputs(),
       [](const Inputs& in) {
         return at::scaled_dot_product_attention(in.query, in.key, in.value);
       }},
      {Inputs(),
       [&](const Inputs& in) {
         return at::scaled_dot_product_attention(in.query, in.key, in.value, allowed);
       }},
      {Inputs(),
       [&](const Inputs& in) {
         return at::scaled_dot_product_attention(in.query, in.key, in.value, added, 0.0, false,
                                                 0.2);
       }},
      {Inputs(at::kFloat, 2),
       [](const Inputs& in) {
         return at::scaled_dot_product_attention(in.query, in.key, in.value, {}, 0.0, true, {},
                                                 true);
       }},
      {Inputs(at::kBFloat16), Causal},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const auto& [in, attention] = cases[i];
    const at::Tensor fused = attention(in);
    {
      const MathAttention twice;
      const double tolerance = fused.scalar_type() == at::kFloat ? 1e-5 : 0.02;
      EXPECT_TRUE(at::allclose(attention(in), fused, tolerance, tolerance));
      EXPECT_TRUE(SecondDerivative(attention, in).abs().sum().item<double>() > 0);
    }
    EXPECT_TRUE(at::equal(attention(in), fused)) << "it goes on after its end";
  }
  EXPECT_ANY_THROW(SecondDerivative(Causal, Inputs())) << "then it would not be needed";
}

TEST(MathAttention, AQueryThatMayLookNowhereIsAsInATen) {
  const Inputs in;
  const at::Tensor allowed = at::ones({7, 7}, at::kBool);
  allowed[3].fill_(false);
  const auto attention = [&] {
    return at::scaled_dot_product_attention(in.query, in.key, in.value, allowed);
  };
  const at::Tensor fused = attention();
  const MathAttention twice;
  EXPECT_TRUE(at::allclose(attention(), fused, 1e-5, 1e-5, /*equal_nan=*/true));
}

TEST(MathAttention, ComputesInTheTypeOfAutocast) {
  const Inputs in;
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor fused = Causal(in);
  const MathAttention twice;
  const at::Tensor math = Causal(in);
  EXPECT_NO_THROW(SecondDerivative(Causal, in));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_EQ(fused.scalar_type(), at::kBFloat16);
  EXPECT_EQ(math.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::allclose(math, fused, 0.02, 0.02));
}

TEST(MathAttention, IsOfItsThreadAlone) {
  const MathAttention twice;
  std::thread other([] { EXPECT_ANY_THROW(SecondDerivative(Causal, Inputs())); });
  other.join();
  {
    const Inputs in;
    const MathAttention nested;
    const OwnDraws draws;
    EXPECT_NO_THROW(SecondDerivative(Causal, in));
    EXPECT_FALSE(draws.drew());
  }
  EXPECT_NO_THROW(SecondDerivative(Causal, Inputs()));
}

TEST(MathAttention, LeavesDropoutToATen) {
  const Inputs in;
  const MathAttention twice;
  const OwnDraws draws;
  at::scaled_dot_product_attention(in.query, in.key, in.value, {}, 0.5);
  EXPECT_TRUE(draws.drew());
}

}  // namespace math_attention_test
}  // namespace ptqwatch::internal
