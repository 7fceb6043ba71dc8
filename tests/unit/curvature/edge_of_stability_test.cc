#include "curvature/edge_of_stability.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/eye.h"
#include "ATen/ops/full.h"
#include "ATen/ops/linalg_eigh.h"
#include "ATen/ops/linspace.h"
#include "ATen/ops/zeros_like.h"
#include "curvature/hessian_operator.h"
#include "curvature/preconditioned_operator.h"
#include "support/tensor_surface.h"

namespace ptqwatch::internal {
namespace edge_of_stability_test {

using ::testing::HasSubstr;
using testing::TensorSurface;

constexpr int64_t kSize = 10;  // "x" has 4 elements, "y" is [2, 3]

at::Tensor Waves(int64_t count, int64_t phase) {
  return ((at::arange(count, at::kDouble) + phase) * 12.9898).sin();
}

// Positive definite, with no structure.
at::Tensor MakeHessian() {
  const at::Tensor a = Waves(kSize * kSize, 5).view({kSize, kSize});
  return a.matmul(a.t()) + 0.05 * at::eye(kSize, at::kDouble);
}

double TopOf(const at::Tensor& matrix) {
  return std::get<0>(at::linalg_eigh(matrix))[kSize - 1].item<double>();
}

// The loss z' H z / 2 of z = (x, y).
struct Quadratic {
  explicit Quadratic(at::Tensor matrix)
      : h(std::move(matrix)),
        x(at::full({4}, 0.5, at::kDouble)),
        y(at::full({2, 3}, 0.5, at::kDouble)),
        surface({{"x", x}, {"y", y}}, [this](size_t) {
          const at::Tensor z = at::cat({x, y.flatten()});
          return 0.5 * z.dot(h.matmul(z));
        }) {
    auto created = HessianOperator::Create(&surface, HessianMode::kRetainedGraph, context);
    EXPECT_TRUE(created.ok()) << created.status();
    hessian = *std::move(created);
    options.residual_ratio = 1e-9;
    auto pair = ExtremeEigenpair(*hessian, {}, options, {}, context);
    EXPECT_TRUE(pair.ok()) << pair.status();
    top = std::move(pair->pair);
  }
  absl::StatusOr<EdgeOfStability> Measure(const OptimizerView& optimizer, WarmStart start = {},
                                          KrylovSpace known = {}) {
    return MeasureEdgeOfStability(*hessian, optimizer, top, std::move(known), start, options,
                                  context);
  }
  ExecutionContext context;
  at::Tensor h;
  at::Tensor x;
  at::Tensor y;
  TensorSurface surface;
  std::unique_ptr<HessianOperator> hessian;
  EigenpairOptions options;
  HessianEigenpair top;
};

// Everything that a rule may have differs between x and y.
OptimizerView MakeView(OptimizerKind kind) {
  OptimizerView view;
  view.kind = kind;
  view.beta2 = 0.99;
  view.epsilon = 1e-3;
  const at::Tensor v = Waves(kSize, 3).square() * 0.3;
  view.parameters = {{"x", 0.02, 0.3, 7, v.narrow(0, 0, 4).clone()},
                     {"y", 0.05, 0.1, 7, v.narrow(0, 4, 6).view({2, 3}).clone()}};
  return view;
}

// One value an element of z.
template <typename Get>
at::Tensor ByElement(const OptimizerView& view, Get get) {
  return at::cat({at::full({4}, get(view.parameters[0]), at::kDouble),
                  at::full({6}, get(view.parameters[1]), at::kDouble)});
}

// What `steps` steps of the optimizer, as LibTorch takes them but with frozen second moments, make
// of the weights' norm on the parabola.
double Growth(const OptimizerView& view, const at::Tensor& h, int steps) {
  const auto rate = ByElement(view, [](const auto& p) { return p.learning_rate; });
  const auto decay = ByElement(view, [](const auto& p) { return p.weight_decay; });
  at::Tensor w = Waves(kSize, 11);
  const double before = w.norm().item<double>();
  at::Tensor momentum = at::zeros_like(w);
  for (int step = 0; step < steps; ++step) {
    at::Tensor g = h.matmul(w);
    if (view.kind == OptimizerKind::kSgd) {
      g = g + decay * w;
      momentum = view.momentum * momentum + (1 - view.dampening) * g;
      if (view.momentum != 0) g = view.nesterov ? g + view.momentum * momentum : momentum;
      w = w - rate * g;
      continue;
    }
    const auto steps_done = static_cast<double>(view.parameters[0].steps);
    const at::Tensor v =
        at::cat({view.parameters[0].second_moment, view.parameters[1].second_moment.flatten()});
    const at::Tensor p = (v / (1 - std::pow(view.beta2, steps_done))).sqrt() + view.epsilon;
    if (view.kind == OptimizerKind::kAdam) {
      g = g + decay * w;
    } else {
      w = w * (1 - rate * decay);
    }
    momentum = view.beta1 * momentum + (1 - view.beta1) * g;
    w = w - rate / (1 - std::pow(view.beta1, steps_done)) * momentum / p;
  }
  return w.norm().item<double>() / before;
}

// The view or the Hessian scaled so that the ratio becomes `wanted`: the rule is linear in the rate
// where decay is part of the gradient, and in the Hessian where it is not.
void ExpectEdgeBetweenShrinkingAndGrowing(OptimizerView view) {
  const at::Tensor h = MakeHessian();
  auto edge = Quadratic(h).Measure(view);
  ASSERT_TRUE(edge.ok()) << edge.status();
  EXPECT_LT(edge->residual_ratio, 1e-6);
  for (double wanted : {0.98, 1.02}) {
    OptimizerView scaled = view;
    at::Tensor scaled_h = h;
    if (view.kind == OptimizerKind::kAdamW) {
      scaled_h = h * (wanted / edge->ratio);
    } else {
      for (OptimizedParameter& parameter : scaled.parameters) {
        parameter.learning_rate *= wanted / edge->ratio;
      }
    }
    auto again = Quadratic(scaled_h).Measure(scaled);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_NEAR(again->ratio, wanted, 1e-6);
    const double growth = Growth(scaled, scaled_h, 1000);
    if (wanted < 1) {
      EXPECT_LT(growth, 1);
    } else {
      EXPECT_GT(growth, 1e6);
    }
  }
}

TEST(EdgeOfStability, IsWhereStepsOfPlainSgdBeginToGrow) {
  ExpectEdgeBetweenShrinkingAndGrowing(MakeView(OptimizerKind::kSgd));
}

TEST(EdgeOfStability, IsWhereStepsOfSgdWithMomentumBeginToGrow) {
  OptimizerView view = MakeView(OptimizerKind::kSgd);
  view.momentum = 0.9;
  ExpectEdgeBetweenShrinkingAndGrowing(view);
  view.dampening = 0.4;
  ExpectEdgeBetweenShrinkingAndGrowing(view);
}

TEST(EdgeOfStability, IsWhereStepsOfSgdWithNesterovMomentumBeginToGrow) {
  OptimizerView view = MakeView(OptimizerKind::kSgd);
  view.momentum = 0.9;
  view.nesterov = true;
  ExpectEdgeBetweenShrinkingAndGrowing(view);
}

TEST(EdgeOfStability, IsWhereStepsOfAdamBeginToGrow) {
  ExpectEdgeBetweenShrinkingAndGrowing(MakeView(OptimizerKind::kAdam));
}

TEST(EdgeOfStability, IsWhereStepsOfAdamWBeginToGrow) {
  OptimizerView view = MakeView(OptimizerKind::kAdamW);
  ExpectEdgeBetweenShrinkingAndGrowing(view);
  // With a decay that matters: published thresholds with one differ here.
  for (OptimizedParameter& parameter : view.parameters) parameter.weight_decay = 15;
  view.beta1 = 0.5;
  ExpectEdgeBetweenShrinkingAndGrowing(view);
}

TEST(EdgeOfStability, OfOneRateIsThatOfThePublishedFormulas) {
  Quadratic quadratic(MakeHessian());
  const double lambda = TopOf(quadratic.h);
  OptimizerView sgd;
  sgd.parameters = {{"x", 0.02}, {"y", 0.02}};
  auto edge = quadratic.Measure(sgd);
  ASSERT_TRUE(edge.ok()) << edge.status();
  EXPECT_NEAR(edge->ratio, 0.02 * lambda / 2, 1e-9);
  EXPECT_EQ(edge->products, 0);
  EXPECT_EQ(edge->residual_ratio, quadratic.top.residual_ratio);
  EXPECT_FALSE(edge->next.vector.defined());
  sgd.momentum = 0.9;
  EXPECT_NEAR(quadratic.Measure(sgd)->ratio, 0.02 * lambda / (2 * 1.9), 1e-9);
  sgd.nesterov = true;
  EXPECT_NEAR(quadratic.Measure(sgd)->ratio, 0.02 * lambda * 2.8 / (2 * 1.9), 1e-9);

  OptimizerView adamw;
  adamw.kind = OptimizerKind::kAdamW;
  adamw.epsilon = 0;
  constexpr int64_t kLate = 1'000'000;
  adamw.parameters = {{"x", 0.02, 0, kLate, at::full({4}, 0.25, at::kDouble)},
                      {"y", 0.02, 0, kLate, at::full({2, 3}, 0.25, at::kDouble)}};
  edge = quadratic.Measure(adamw);
  ASSERT_TRUE(edge.ok()) << edge.status();
  EXPECT_NEAR(edge->ratio, 0.02 * (lambda / 0.5) / 38, 1e-8);
  EXPECT_GT(edge->products, 0);
}

TEST(EdgeOfStability, CorrectsTheBiasOfYoungMoments) {
  Quadratic quadratic(MakeHessian());
  OptimizerView young = MakeView(OptimizerKind::kAdamW);
  OptimizerView late = young;
  for (size_t i = 0; i < 2; ++i) {
    late.parameters[i].steps = 1'000'000;
    late.parameters[i].weight_decay = young.parameters[i].weight_decay = 0;
    late.parameters[i].learning_rate /= 1 - std::pow(young.beta1, 7);
    late.parameters[i].second_moment =
        late.parameters[i].second_moment / (1 - std::pow(young.beta2, 7));
  }
  EXPECT_NEAR(quadratic.Measure(young)->ratio, quadratic.Measure(late)->ratio, 1e-8);
}

TEST(EdgeOfStability, StartsFromWhatTheSearchForTheTopHasFound) {
  // A bulk and 20 outliers, and second moments that differ by a factor of 100.
  constexpr int64_t kMany = 20'000;
  at::Tensor values = Waves(kMany, 0) * 0.02;
  values.narrow(0, 0, 20).copy_(at::linspace(0.1, 1, 20, at::kDouble));
  at::Tensor x = at::full({kMany}, 0.5, at::kDouble);
  TensorSurface surface({{"x", x}}, [&](size_t) { return 0.5 * (x * x * values).sum(); });
  ExecutionContext context;
  auto hessian = HessianOperator::Create(&surface, HessianMode::kRetainedGraph, context);
  ASSERT_TRUE(hessian.ok()) << hessian.status();
  auto search = ExtremeEigenpair(**hessian, {}, {}, {}, context);
  ASSERT_TRUE(search.ok()) << search.status();
  OptimizerView view;
  view.kind = OptimizerKind::kAdamW;
  view.parameters = {{"x", 0.02, 0, 1000, Waves(kMany, 3).square() + 0.01}};
  EigenpairOptions options;
  options.residual_ratio = 0.05;
  options.max_products = 3;
  const auto alone =
      MeasureEdgeOfStability(**hessian, view, search->pair, {}, {}, options, context);
  const auto joined = MeasureEdgeOfStability(**hessian, view, search->pair,
                                             std::move(search->krylov), {}, options, context);
  ASSERT_TRUE(alone.ok() && joined.ok());
  // Three products from there come nearer than three from a random start.
  EXPECT_LT(joined->residual_ratio, alone->residual_ratio / 2);
  EXPECT_LE(joined->residual_ratio, 0.1);
  options.max_products = 40;
  const auto full = MeasureEdgeOfStability(**hessian, view, search->pair, {}, {}, options, context);
  ASSERT_TRUE(full.ok());
  EXPECT_NEAR(joined->ratio, full->ratio, 0.02 * full->ratio);
}

TEST(EdgeOfStability, IsALowerBoundIfTrainedParametersAreLeftOut) {
  Quadratic quadratic(MakeHessian());
  OptimizerView view = MakeView(OptimizerKind::kAdamW);
  const double whole = quadratic.Measure(view)->ratio;
  view.parameters.pop_back();
  auto part = quadratic.Measure(view);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_GT(part->ratio, 0);
  EXPECT_LT(part->ratio, whole);
  // y stands still.
  EXPECT_NEAR(quadratic.hessian->space().View(part->next.vector, 1).norm().item<double>(), 0, 1e-8);
}

TEST(EdgeOfStability, StartsFromTheVectorOfBefore) {
  Quadratic quadratic(MakeHessian());
  const OptimizerView view = MakeView(OptimizerKind::kAdamW);
  quadratic.options.residual_ratio = 0.02;
  auto cold = quadratic.Measure(view);
  ASSERT_TRUE(cold.ok());
  auto warm = quadratic.Measure(view, cold->next);
  ASSERT_TRUE(warm.ok());
  EXPECT_NEAR(warm->ratio, cold->ratio, 0.02 * cold->ratio);
}

TEST(EdgeOfStability, SaysWhyThereIsNone) {
  Quadratic quadratic(MakeHessian());
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const auto message = [&](OptimizerKind kind, auto change) {
    OptimizerView view = MakeView(kind);
    change(view);
    const absl::Status status = quadratic.Measure(view).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  constexpr auto kSgd = OptimizerKind::kSgd;
  constexpr auto kAdamW = OptimizerKind::kAdamW;
  EXPECT_EQ(message(OptimizerKind::kMuon, [](auto&) {}), "there is no formula for muon");
  EXPECT_EQ(message(kSgd, [](auto& v) { v.parameters[0].learning_rate = -1; }),
            "the learning rate of 'x' is -1");
  EXPECT_EQ(message(kSgd, [&](auto& v) { v.parameters[1].learning_rate = kNan; }),
            "the learning rate of 'y' is nan");
  EXPECT_EQ(message(kAdamW, [&](auto& v) { v.parameters[1].weight_decay = -0.1; }),
            "the weight decay of 'y' is -0.1");
  EXPECT_THAT(message(kAdamW, [](auto& v) { v.parameters[0].weight_decay = 100; }),
              HasSubstr("alone is past the edge, of 'x' is 2"));
  EXPECT_THAT(message(kSgd,
                      [](auto& v) {
                        for (auto& parameter : v.parameters) parameter.learning_rate = 0;
                      }),
              HasSubstr("learning rate above 0"));
  EXPECT_THAT(message(kSgd, [](auto& v) { v.parameters.clear(); }), HasSubstr("above 0"));
  EXPECT_THAT(message(kAdamW, [](auto& v) { v.parameters[1].second_moment = at::Tensor(); }),
              HasSubstr("'y' has no second moment"));
  EXPECT_THAT(message(kAdamW, [](auto& v) { v.parameters[0].steps = 0; }), HasSubstr("'x' has no"));
  EXPECT_THAT(message(kAdamW, [&](auto& v) { v.parameters[0].second_moment[2] = kNan; }),
              HasSubstr("second moment of 'x' is negative or not finite"));
  EXPECT_THAT(message(kAdamW, [](auto& v) { v.parameters[0].second_moment[2] = -1e-3; }),
              HasSubstr("negative or not finite"));
  EXPECT_THAT(message(kAdamW,
                      [](auto& v) {
                        v.epsilon = 0;
                        v.parameters[0].second_moment[2] = 0;
                      }),
              HasSubstr("is 0 somewhere, and the optimizer's epsilon is 0"));
  EXPECT_THAT(message(kAdamW, [](auto& v) { v.parameters.push_back(v.parameters[0]); }),
              HasSubstr("lists 'x' 2 times"));
  EXPECT_EQ(message(kAdamW, [](auto& v) { v.unavailable = "no such rule"; }), "no such rule");
}

TEST(PreconditionedOperator, IsTheScaledAndShiftedMatrix) {
  Quadratic quadratic(MakeHessian());
  const VectorSpace& space = quadratic.hessian->space();
  const Vector scale{Waves(kSize, 1)};
  const Vector shift{Waves(kSize, 2)};
  PreconditionedOperator shifted(quadratic.hessian.get(), scale, shift);
  PreconditionedOperator plain(quadratic.hessian.get(), scale, Vector());
  const at::Tensor shs = scale.elements.unsqueeze(1) * quadratic.h * scale.elements;
  const Vector v{Waves(kSize, 9)};
  Vector product = space.Zero();
  ASSERT_TRUE(shifted.Apply(v, product, quadratic.context).ok());
  const at::Tensor expected = shs.matmul(v.elements);
  EXPECT_LT((product.elements - expected - shift.elements * v.elements).norm().item<double>(),
            1e-12);
  ASSERT_TRUE(plain.Apply(v, product, quadratic.context).ok());
  EXPECT_LT((product.elements - expected).norm().item<double>(), 1e-12);
}

TEST(PreconditionedOperator, SaysIfAProductOverflows) {
  Quadratic quadratic(MakeHessian());
  PreconditionedOperator huge(quadratic.hessian.get(), {at::full({kSize}, 1e200, at::kDouble)},
                              Vector());
  Vector product = quadratic.hessian->space().Zero();
  EXPECT_TRUE(absl::IsDataLoss(huge.Apply({Waves(kSize, 9)}, product, quadratic.context)));
}

}  // namespace edge_of_stability_test
}  // namespace ptqwatch::internal
