#include "ptqwatch/offline/loss_curvature.h"

#include <gmock/gmock.h>

#include <cmath>
#include <memory>
#include <string>

#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "unit/curvature/tanh_net.h"

namespace ptqwatch {
namespace loss_curvature_test {

using ::testing::HasSubstr;
using testing::TanhNet;

struct Engine {
  explicit Engine(CurvatureOptions options_in = {}) : options(std::move(options_in)) {}
  absl::StatusOr<std::unique_ptr<LossCurvature>> Make() {
    subject = net.MakeSubject();
    return LossCurvature::Create(*subject, options, engine, context);
  }
  TanhNet net;
  CurvatureOptions options;
  CurvatureEngineOptions engine;
  std::unique_ptr<Subject> subject;
  ExecutionContext context;
};

TEST(LossCurvature, GivesTheNumbersOfAMonitor) {
  Engine engine;
  auto curvature = engine.Make();
  ASSERT_TRUE(curvature.ok()) << curvature.status();
  EXPECT_EQ((*curvature)->mode(), HessianMode::kRetainedGraph);
  EXPECT_EQ((*curvature)->dimension(), 24 * 16 + 24 * 24);
  EXPECT_EQ((*curvature)->parameters()[1].name, "mid.weight");
  EXPECT_EQ((*curvature)->parameters()[1].offset, 24 * 16);
  auto measurement = engine.net.Measure();
  ASSERT_TRUE(measurement.ok()) << measurement.status();
  const CurvatureReport report = *TanhNet::Run(**measurement).curvature;
  const auto spectrum = (*curvature)->Spectrum(engine.context);
  ASSERT_TRUE(spectrum.ok()) << spectrum.status();
  EXPECT_EQ(spectrum->top[0].value, report.top_eigenvalue);
  EXPECT_EQ(spectrum->products, report.top_eigenvalues[0].products);
  EXPECT_GT(spectrum->seconds, 0);
  const auto trace = (*curvature)->Trace(engine.context);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->trace, report.trace);
  EXPECT_EQ(trace->weighted_trace, report.weighted_trace);
  EXPECT_EQ(trace->parameters[0].trace, report.layers[0].trace);
  EXPECT_EQ(trace->layers.size(), 2u);
  EXPECT_EQ(*(*curvature)->Loss(engine.context), report.loss_nats);
}

TEST(LossCurvature, EveryNumberAgreesWithProductsOfItsOwn) {
  CurvatureOptions options;
  options.scope = CurvatureScope::kAllParameters;
  options.bottom_eigenvalue = true;
  options.eigenvalue_residual_ratio = 1e-3;
  Engine engine(options);
  auto curvature = engine.Make();
  ASSERT_TRUE(curvature.ok()) << curvature.status();
  const auto spectrum = (*curvature)->Spectrum(engine.context);
  ASSERT_TRUE(spectrum.ok()) << spectrum.status();
  for (const HessianEigenpair* pair : {&spectrum->top[0], &spectrum->bottom[0]}) {
    const auto product = (*curvature)->Multiply(pair->vector, engine.context);
    ASSERT_TRUE(product.ok()) << product.status();
    EXPECT_LT((*product - pair->vector * pair->value).norm().item<double>(),
              5e-3 * std::abs(pair->value));
  }
  const at::Tensor d = spectrum->top[0].vector * 0.01;
  const auto along = (*curvature)->Along(d, engine.context);
  ASSERT_TRUE(along.ok()) << along.status();
  EXPECT_NEAR(along->curvature, spectrum->top[0].value, 1e-4 * spectrum->top[0].value);
  const auto gradient = (*curvature)->Gradient(engine.context);
  ASSERT_TRUE(gradient.ok());
  EXPECT_NEAR(along->gradient_term, gradient->dot(d).item<double>(), 1e-8);
  const auto losses = (*curvature)->LossesAlong(d, {0, 1}, engine.context);
  ASSERT_TRUE(losses.ok()) << losses.status();
  EXPECT_NEAR((*losses)[1] - (*losses)[0], along->gradient_term + along->curvature_term, 2e-6);
  // The weights are where they were, and a product works again.
  EXPECT_TRUE((*curvature)->Multiply(d, engine.context).ok());
}

TEST(LossCurvature, ASearchByDifferencesGivesExactValuesAndLeavesExactProducts) {
  for (const HessianMode mode : {HessianMode::kRetainedGraph, HessianMode::kRecomputedGraph}) {
    Engine engine;
    engine.engine.mode = mode;
    auto curvature = engine.Make();
    ASSERT_TRUE(curvature.ok()) << curvature.status();
    const at::Tensor v = at::ones({(*curvature)->dimension()});
    const auto before = (*curvature)->Multiply(v, engine.context);
    ASSERT_TRUE(before.ok()) << before.status();
    const auto spectrum = (*curvature)->Spectrum(engine.context);
    ASSERT_TRUE(spectrum.ok()) << spectrum.status();
    const auto after = (*curvature)->Multiply(v, engine.context);
    ASSERT_TRUE(after.ok()) << after.status();
    EXPECT_TRUE(before->equal(*after));
    const HessianEigenpair& top = spectrum->top[0];
    const auto product = (*curvature)->Multiply(top.vector, engine.context);
    ASSERT_TRUE(product.ok()) << product.status();
    EXPECT_NEAR(product->dot(top.vector).item<double>(), top.value, 1e-6 * top.value);
    EXPECT_NEAR((*product - top.vector * top.value).norm().item<double>() / top.value,
                top.residual_ratio, 1e-5);
  }
}

TEST(LossCurvature, CriticalSharpnessIsTheCurvatureAlongTheGradient) {
  Engine engine;
  auto curvature = engine.Make();
  ASSERT_TRUE(curvature.ok()) << curvature.status();
  at::Tensor d = *(*curvature)->Gradient(engine.context);
  d.mul_(0.02 / d.norm());
  const auto along = (*curvature)->Along(d, engine.context);
  ASSERT_TRUE(along.ok()) << along.status();
  const auto critical = (*curvature)->CriticalAlong(d, engine.context);
  ASSERT_TRUE(critical.ok()) << critical.status();
  EXPECT_LT(critical->loss_evaluations, 10);
  EXPECT_LT(critical->scale, 0);
  const auto losses = (*curvature)->LossesAlong(d, {0, critical->scale}, engine.context);
  ASSERT_TRUE(losses.ok()) << losses.status();
  const double dip = -critical->scale * along->gradient_term / 4;
  EXPECT_NEAR((*losses)[1], (*losses)[0], 0.2 * dip);
  EXPECT_GT(critical->sharpness, 0.3 * along->curvature);
  EXPECT_LT(critical->sharpness, 3 * along->curvature);
  EXPECT_EQ((*curvature)->CriticalAlong(d.narrow(0, 0, 3), engine.context).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(LossCurvature, ReloadTakesTheLiveWeightsAndGoesOnFromTheVectorsItHas) {
  Engine engine;
  auto curvature = engine.Make();
  ASSERT_TRUE(curvature.ok()) << curvature.status();
  const auto before = (*curvature)->Spectrum(engine.context);
  ASSERT_TRUE(before.ok());
  EXPECT_EQ(before->top[0].start, EigenvalueStart::kCold);
  for (NamedTensor& named : engine.net.live) named.tensor.mul_(1.01);
  const double loss = *(*curvature)->Loss(engine.context);
  ASSERT_TRUE((*curvature)->Reload().ok());
  EXPECT_NE(*(*curvature)->Loss(engine.context), loss);
  const auto after = (*curvature)->Spectrum(engine.context);
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(after->top[0].start, EigenvalueStart::kWarm);
  EXPECT_NE(after->top[0].value, before->top[0].value);
}

TEST(LossCurvature, SaysWhatIsWrong) {
  Engine engine;
  auto curvature = engine.Make();
  ASSERT_TRUE(curvature.ok()) << curvature.status();
  const absl::Status shape = (*curvature)->Multiply(at::ones({3}), engine.context).status();
  EXPECT_EQ(shape.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(shape.message()), HasSubstr("a vector of shape [3], expected [960]"));
  engine.context.bytes = std::make_shared<ByteBudget>(100);
  EXPECT_TRUE(absl::IsResourceExhausted((*curvature)->Spectrum(engine.context).status()));
  EXPECT_TRUE(absl::IsResourceExhausted((*curvature)->Trace(engine.context).status()));
  engine.context.bytes = std::make_shared<ByteBudget>();
  engine.context.cancel.Cancel();
  EXPECT_TRUE(absl::IsCancelled((*curvature)->Spectrum(engine.context).status()));
  engine.context.cancel.Reset();
  engine.net.live[0].tensor.fill_(NAN);
  ASSERT_TRUE((*curvature)->Reload().ok());
  EXPECT_TRUE(absl::IsDataLoss((*curvature)->Spectrum(engine.context).status()));

  Engine wrong;
  wrong.options.top_eigenvalues = 0;
  EXPECT_THAT(std::string(wrong.Make().status().message()), HasSubstr("top_eigenvalues = 0"));
  wrong.options = {};
  wrong.engine.max_trace_probes = 1;
  EXPECT_THAT(std::string(wrong.Make().status().message()), HasSubstr("max_trace_probes = 1"));
  wrong.engine = {};
  wrong.net.losses = [losses = wrong.net.losses](const TensorMap& p, const Batch& b) {
    at::NoGradGuard no_grad;
    return losses(p, b);
  };
  EXPECT_THAT(std::string(wrong.Make().status().message()), HasSubstr("no graph"));
}

TEST(LossCurvature, RefusesDifferencesOfALossThatIsTooRough) {
  Engine engine;
  engine.engine.mode = HessianMode::kFiniteDifference;
  auto smooth = engine.Make();
  ASSERT_TRUE(smooth.ok()) << smooth.status();
  EXPECT_TRUE((*smooth)->Spectrum(engine.context).ok());
  // The mode is chosen on the first batch, which alone is smooth.
  engine.net.losses = [losses = engine.net.losses](const TensorMap& p,
                                                   const Batch& b) -> LossValues {
    const at::Tensor values = losses(p, b).values;
    if (b[0][0][0].item<double>() == 0) return values;
    return values + (p.at("mid.weight") * 3e6).sin().mean();
  };
  auto rough = engine.Make();
  ASSERT_TRUE(rough.ok()) << rough.status();
  for (const absl::Status& status :
       {(*rough)->Spectrum(engine.context).status(), (*rough)->Trace(engine.context).status(),
        (*rough)->Multiply(at::ones({960}), engine.context).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("too rough"));
  }
}

TEST(LossCurvature, TakesAModelOfOneParameter) {
  Engine engine;
  engine.options.scope = CurvatureScope::kAllParameters;
  engine.net.live = {{"w", at::full({1}, 0.5), true}};
  engine.net.losses = [](const TensorMap& p, const Batch& b) -> LossValues {
    return (p.at("w") * b[0].sum(1) - 1).square();
  };
  auto curvature = engine.Make();
  ASSERT_TRUE(curvature.ok()) << curvature.status();
  const auto spectrum = (*curvature)->Spectrum(engine.context);
  ASSERT_TRUE(spectrum.ok()) << spectrum.status();
  const auto trace = (*curvature)->Trace(engine.context);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_GT(spectrum->top[0].value, 0);
  EXPECT_NEAR(trace->trace, spectrum->top[0].value, 1e-5 * trace->trace);
  EXPECT_NEAR(trace->trace_stderr, 0, 1e-6 * trace->trace);
}

}  // namespace loss_curvature_test
}  // namespace ptqwatch
