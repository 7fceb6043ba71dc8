#include <gmock/gmock.h>

#include <cmath>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/randint.h"
#include "ATen/ops/scaled_dot_product_attention.h"
#include "ATen/ops/tensor.h"
#include "ptqwatch/module_subject.h"
#include "ptqwatch/offline/loss_curvature.h"
#include "torch/nn/modules/activation.h"
#include "torch/nn/modules/embedding.h"
#include "torch/nn/modules/linear.h"
#include "torch/nn/modules/transformercoder.h"
#include "torch/nn/modules/transformerlayer.h"

namespace ptqwatch {
namespace attention_curvature_test {

namespace nn = torch::nn;

constexpr int64_t kTokens = 16;
constexpr int64_t kWidth = 12;
constexpr int64_t kHeads = 3;
constexpr int64_t kLength = 9;

// Logits of tokens of which those in `padding` [N, T] are none.
struct Net : nn::Module {
  Net()
      : embedding(register_module("embedding", nn::Embedding(kTokens, kWidth))),
        head(register_module("head", nn::Linear(kWidth, kTokens))) {}
  virtual at::Tensor Hidden(const at::Tensor& x, const at::Tensor& padding) = 0;
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& padding) {
    return head(Hidden(embedding(ids), padding));
  }
  nn::Embedding embedding;
  nn::Linear head;
};

struct Attention : Net {
  Attention() : attention(register_module("attention", nn::MultiheadAttention(kWidth, kHeads))) {}
  at::Tensor Hidden(const at::Tensor& x, const at::Tensor& padding) override {
    const at::Tensor turned = x.transpose(0, 1);
    const at::Tensor y = std::get<0>(attention(turned, turned, turned, padding));
    return x + y.transpose(0, 1);
  }
  nn::MultiheadAttention attention;
};

// The same function of the same parameters, by the fused operator.
struct FusedAttention : Attention {
  at::Tensor Hidden(const at::Tensor& x, const at::Tensor& padding) override {
    const auto projected =
        (at::matmul(x, attention->in_proj_weight.t()) + attention->in_proj_bias).chunk(3, -1);
    const auto heads = [](const at::Tensor& t) {
      return t.unflatten(-1, {kHeads, kWidth / kHeads}).transpose(1, 2);
    };
    const at::Tensor allowed = padding.logical_not().unsqueeze(1).unsqueeze(1);
    const at::Tensor y = at::scaled_dot_product_attention(heads(projected[0]), heads(projected[1]),
                                                          heads(projected[2]), allowed);
    return x + attention->out_proj(y.transpose(1, 2).flatten(2));
  }
};

struct Encoder : Net {
  Encoder()
      : encoder(register_module("encoder", nn::TransformerEncoder(nn::TransformerEncoderOptions(
                                               nn::TransformerEncoderLayerOptions(kWidth, kHeads)
                                                   .activation(torch::kGELU)
                                                   .dim_feedforward(20)
                                                   .dropout(0),
                                               2)))) {}
  at::Tensor Hidden(const at::Tensor& x, const at::Tensor& padding) override {
    return encoder(x.transpose(0, 1), at::Tensor(), padding).transpose(0, 1);
  }
  nn::TransformerEncoder encoder;
};

std::vector<Batch> Sentences() {
  const at::Generator generator = at::detail::createCPUGenerator(7);
  std::vector<Batch> batches;
  for (int i = 0; i < 2; ++i) {
    const at::Tensor ids = at::randint(kTokens, {3, kLength}, generator, at::kLong);
    const at::Tensor lengths = at::tensor({kLength, int64_t{4}, int64_t{2} + i}).unsqueeze(1);
    batches.push_back({ids, at::arange(kLength) >= lengths});
  }
  return batches;
}

template <typename Model>
std::shared_ptr<Model> Made() {
  auto model = std::make_shared<Model>();
  const at::Generator generator = at::detail::createCPUGenerator(3);
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : model->parameters()) {
    const bool matrix = parameter.dim() >= 2;
    parameter.normal_(matrix ? 0 : 0.5, matrix ? 0.4 : 0.1, generator);
  }
  return model;
}

struct Measured {
  HessianMode mode = HessianMode::kAuto;
  double eigenvalue = 0;
  double trace = 0;
};

template <typename Model>
Measured Measure(HessianMode mode) {
  const auto model = Made<Model>();
  ModuleSubjectOptions<std::shared_ptr<Model>> options;
  options.replica = [] { return std::make_shared<Model>(); };
  options.losses = [](std::shared_ptr<Model>& net, const Batch& batch) -> LossValues {
    const at::Tensor logits = net->forward(batch[0], batch[1]);
    const at::Tensor targets = (batch[0] * 5 + 3).remainder(kTokens).flatten();
    const at::Tensor losses =
        at::cross_entropy_loss(logits.flatten(0, 1), targets, {}, at::Reduction::None);
    LossValues values = losses.view_as(batch[0]);
    values.weights = batch[1].logical_not().to(at::kFloat);
    return values;
  };
  options.probe = Sentences();
  const auto subject = MakeModuleSubject(model, std::move(options));
  CurvatureOptions measured;
  measured.eigenvalue_residual_ratio = 1e-3;
  CurvatureEngineOptions engine;
  engine.mode = mode;
  engine.max_eigenvalue_products = 80;
  engine.max_trace_probes = 8;
  Measured result;
  auto curvature = LossCurvature::Create(*subject, measured, engine, {});
  EXPECT_TRUE(curvature.ok()) << curvature.status();
  if (!curvature.ok()) return result;
  result.mode = (*curvature)->mode();
  const auto spectrum = (*curvature)->Spectrum();
  EXPECT_TRUE(spectrum.ok()) << spectrum.status();
  const auto trace = (*curvature)->Trace();
  EXPECT_TRUE(trace.ok()) << trace.status();
  if (spectrum.ok()) result.eigenvalue = spectrum->top[0].value;
  if (trace.ok()) result.trace = trace->trace;
  return result;
}

TEST(AttentionCurvature, FusedAttentionHasThatOfTheModule) {
  const Measured module = Measure<Attention>(HessianMode::kAuto);
  const Measured fused = Measure<FusedAttention>(HessianMode::kAuto);
  EXPECT_EQ(module.mode, HessianMode::kRetainedGraph);
  EXPECT_EQ(fused.mode, HessianMode::kRetainedGraph);
  EXPECT_GT(module.eigenvalue, 0);
  EXPECT_NEAR(fused.eigenvalue, module.eigenvalue, 1e-4 * module.eigenvalue);
  EXPECT_NEAR(fused.trace, module.trace, 1e-4 * std::abs(module.trace));
}

TEST(AttentionCurvature, OfAnEncoderWithPaddingIsExact) {
  const Measured exact = Measure<Encoder>(HessianMode::kAuto);
  const Measured differences = Measure<Encoder>(HessianMode::kFiniteDifference);
  EXPECT_EQ(exact.mode, HessianMode::kRetainedGraph);
  EXPECT_GT(exact.eigenvalue, 0);
  EXPECT_NEAR(differences.eigenvalue, exact.eigenvalue, 1e-3 * exact.eigenvalue);
}

}  // namespace attention_curvature_test
}  // namespace ptqwatch
