#include "curvature/hessian_mode.h"

#include <gmock/gmock.h>

#include <limits>
#include <string>
#include <utility>

#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/embedding.h"
#include "ATen/ops/full.h"
#include "ATen/ops/linspace.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/one_hot.h"
#include "ATen/ops/relu.h"
#include "ATen/ops/scaled_dot_product_attention.h"
#include "ATen/ops/zeros.h"
#include "support/tensor_surface.h"
#include "torch/csrc/autograd/custom_function.h"

namespace ptqwatch::internal {
namespace hessian_mode_test {

using ::testing::HasSubstr;
using testing::TensorSurface;

constexpr HessianMode kAuto = HessianMode::kAuto;
constexpr HessianMode kRetained = HessianMode::kRetainedGraph;
constexpr HessianMode kRecomputed = HessianMode::kRecomputedGraph;
constexpr HessianMode kDifference = HessianMode::kFiniteDifference;
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

at::Tensor Waves(int64_t rows, int64_t columns, double scale) {
  return (at::arange(rows * columns, at::kDouble) * 12.9898).sin().mul(scale).view({rows, columns});
}

TEST(ChooseHessianMode, RetainsTheGraphsThatFitAndRecomputesOthers) {
  // Two products with inputs of 64 x 32 in each of 4 batches.
  at::Tensor w = Waves(32, 32, 0.3);
  const at::Tensor x = Waves(64, 32, 1);
  TensorSurface surface(
      {{"w", w}}, [&](size_t) { return at::mm(at::mm(x, w).tanh(), w).square().sum(); }, 4);
  ExecutionContext context;
  const auto roomy = ChooseHessianMode(&surface, kAuto, kNoLimit, context);
  ASSERT_TRUE(roomy.ok()) << roomy.status();
  EXPECT_EQ(roomy->mode, kRetained);
  EXPECT_TRUE(roomy->rough_differences);
  // At least tanh's result and the second product, at most some 20 such tensors a batch.
  const int64_t activations = 64 * 32 * 8;
  ASSERT_TRUE(roomy->graph_bytes);
  EXPECT_GT(*roomy->graph_bytes, 4 * 2 * activations);
  EXPECT_LT(*roomy->graph_bytes, 4 * 20 * activations);

  const auto tight = ChooseHessianMode(&surface, kAuto, *roomy->graph_bytes - 1, context);
  ASSERT_TRUE(tight.ok()) << tight.status();
  EXPECT_EQ(tight->mode, kRecomputed);
  EXPECT_EQ(tight->graph_bytes, roomy->graph_bytes);
  // Who asks for a mode gets it.
  EXPECT_EQ(ChooseHessianMode(&surface, kRetained, 0, context)->mode, kRetained);
  EXPECT_EQ(ChooseHessianMode(&surface, kRecomputed, kNoLimit, context)->mode, kRecomputed);
  EXPECT_EQ(ChooseHessianMode(&surface, kDifference, 0, context)->mode, kDifference);
}

TEST(ChooseHessianMode, DoesNotMindALinearLossNorTheKinksOfRelu) {
  ExecutionContext context;
  at::Tensor w = at::full({4}, 1.0, at::kDouble);
  TensorSurface linear({{"w", w}}, [&](size_t) { return (3 * w).sum(); });
  const auto flat = ChooseHessianMode(&linear, kAuto, kNoLimit, context);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(flat->mode, kRetained);

  at::Tensor in = Waves(32, 16, 0.5).to(at::kFloat);
  at::Tensor out = Waves(16, 8, 0.5).to(at::kFloat);
  const at::Tensor x = Waves(32, 32, 2).to(at::kFloat);
  TensorSurface kinks({{"in", in}, {"out", out}}, [&](size_t) {
    return at::mm(at::mm(x, in).relu(), out).logsumexp(1).sum().to(at::kDouble);
  });
  const auto rough = ChooseHessianMode(&kinks, kAuto, kNoLimit, context);
  ASSERT_TRUE(rough.ok()) << rough.status();
  EXPECT_EQ(rough->mode, kRetained);
}

// A cross-entropy of softmax(x) against class 0 whose backward multiplies by what forward saved,
// which autograd takes for constant: symmetric second derivatives without the softmax's own.
struct FusedCrossEntropy : torch::autograd::Function<FusedCrossEntropy> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    const at::Tensor target =
        at::one_hot(at::full({x.size(0)}, 0, at::kLong), x.size(1)).to(x.scalar_type());
    context->save_for_backward({x.softmax(1) - target});
    return (x.logsumexp(1) - x.select(1, 0)).sum();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * context->get_saved_variables()[0]};
  }
};

TEST(ChooseHessianMode, RefusesSecondDerivativesThatAreSymmetricAndWrong) {
  // With small weights, what is missing is 1.5 % of a product.
  for (const auto& [scale, offset] : {std::pair(0.4, 0.0), std::pair(0.05, 1.0)}) {
    SCOPED_TRACE(scale);
    at::Tensor in = Waves(16, 12, scale);
    at::Tensor out = Waves(12, 8, scale);
    const at::Tensor x = Waves(64, 16, 1) + offset;
    TensorSurface surface({{"in", in}, {"out", out}}, [&](size_t) {
      return FusedCrossEntropy::apply(at::mm(at::mm(x, in).tanh(), out));
    });
    ExecutionContext context;
    const absl::Status status = ChooseHessianMode(&surface, kRetained, kNoLimit, context).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("away from a finite difference"));
    const auto choice = ChooseHessianMode(&surface, kAuto, kNoLimit, context);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->mode, kDifference);
    EXPECT_EQ("retained_graph: " + choice->detail, std::string(status.message()));
  }
}

TEST(ChooseHessianMode, ComparesAlongTheGradientIfARandomDirectionIsRough) {
  // The loss has steps in its slope along all of `rough`, of which the gradient sees none.
  at::Tensor in = Waves(16, 12, 0.4);
  at::Tensor out = Waves(12, 8, 0.4);
  at::Tensor rough = at::zeros({400}, at::kDouble);
  const at::Tensor x = Waves(64, 16, 1);
  const auto loss = [&](bool fused) {
    return [&, fused](size_t) {
      const at::Tensor logits = at::mm(at::mm(x, in).tanh(), out);
      const at::Tensor entropy = fused ? FusedCrossEntropy::apply(logits)
                                       : (logits.logsumexp(1) - logits.select(1, 0)).sum();
      return entropy + 100 * rough.abs().sum();
    };
  };
  TensorSurface right({{"in", in}, {"out", out}, {"rough", rough}}, loss(false));
  TensorSurface wrong({{"in", in}, {"out", out}, {"rough", rough}}, loss(true));
  const auto choice = ChooseHessianMode(&right, kRetained, kNoLimit, {});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_FALSE(choice->rough_differences);
  const absl::Status status = ChooseHessianMode(&wrong, kRetained, kNoLimit, {}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("away from a finite difference"));
}

// The row of padding_idx has no gradient, though the loss depends on it.
TEST(ChooseHessianMode, DoesNotMindAPaddingThatIsAlsoAToken) {
  at::Tensor table = Waves(8, 16, 1);
  const at::Tensor readout = Waves(16, 4, 0.7);
  const at::Tensor tokens = at::arange(24).remainder(3).remainder(2);  // 0, 1, 0, 0, 1, 0, ...
  TensorSurface surface(
      {{"table", table}},
      [&](size_t) {
        return at::mm(at::embedding(table, tokens, /*padding_idx=*/0).tanh(), readout)
            .logsumexp(1)
            .square()
            .sum();
      },
      1);
  ExecutionContext context;
  const auto choice = ChooseHessianMode(&surface, kAuto, kNoLimit, context);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->mode, kRetained) << choice->detail;
}

TEST(ChooseHessianMode, RefusesDifferencesOfALossThatIsTooRough) {
  at::Tensor w = at::linspace(-1, 1, 8, at::kFloat);
  TensorSurface surface({{"w", w}}, [&](size_t) { return (w * 1e6).sin().sum().to(at::kDouble); });
  ExecutionContext context;
  const absl::Status status = ChooseHessianMode(&surface, kDifference, kNoLimit, context).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("too rough"));
}

TEST(ChooseHessianMode, FallsBackIfAnOperatorHasNoSecondDerivative) {
  // Fused attention, called directly: its backward has no derivative.
  at::Tensor w = at::linspace(-1, 1, 2 * 4 * 8).view({1, 2, 4, 8}).contiguous();
  TensorSurface surface({{"w", w}}, [&](size_t) {
    return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(w, w * 0.5, w.sin()))
        .square()
        .sum()
        .to(at::kDouble);
  });
  ExecutionContext context;
  const auto choice = ChooseHessianMode(&surface, kAuto, kNoLimit, context);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->mode, kDifference);
  EXPECT_THAT(choice->detail,
              HasSubstr("_scaled_dot_product_flash_attention_for_cpu_backward is not implemented"));
  EXPECT_FALSE(choice->graph_bytes);
  const absl::Status asked = ChooseHessianMode(&surface, kRetained, kNoLimit, context).status();
  EXPECT_THAT(std::string(asked.message()), HasSubstr("retained_graph: "));
}

TEST(ChooseHessianMode, IsExactThroughAttention) {
  at::Tensor w = at::linspace(-1, 1, 2 * 4 * 8).view({1, 2, 4, 8}).contiguous();
  TensorSurface surface({{"w", w}}, [&](size_t) {
    return at::scaled_dot_product_attention(w, w * 0.5, w.sin()).square().sum().to(at::kDouble);
  });
  const auto choice = ChooseHessianMode(&surface, kAuto, kNoLimit, {});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->mode, kRetained);
}

// y = x^2 whose backward claims to be differentiable and is not symmetric.
struct WrongSquare : torch::autograd::Function<WrongSquare> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    return {gradients[0] * 2 * x + 3 * x.roll(1)};
  }
};

TEST(ChooseHessianMode, RefusesSecondDerivativesThatAreNotSymmetric) {
  at::Tensor w = at::linspace(-1, 1, 61, at::kDouble);
  TensorSurface surface({{"w", w}}, [&](size_t) { return WrongSquare::apply(w).sum(); });
  ExecutionContext context;
  const absl::Status status = ChooseHessianMode(&surface, kRetained, kNoLimit, context).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("not symmetric"));
}

TEST(ChooseHessianMode, SaysWhyNothingWorks) {
  at::Tensor w = at::full({4}, 1.0);
  TensorSurface surface({{"w", w}}, [&](size_t) { return w.detach().sum().to(at::kDouble); });
  ExecutionContext context;
  const absl::Status status = ChooseHessianMode(&surface, kAuto, kNoLimit, context).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("retained_graph: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("; finite_difference: "));
}

TEST(SmallerMode, GoesDownToDifferences) {
  EXPECT_EQ(SmallerMode(kRetained), kRecomputed);
  EXPECT_EQ(SmallerMode(kRecomputed), kDifference);
  EXPECT_EQ(SmallerMode(kDifference), std::nullopt);
}

}  // namespace hessian_mode_test
}  // namespace ptqwatch::internal
