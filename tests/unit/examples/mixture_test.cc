#include "mixture.h"

#include <algorithm>
#include <string>
#include <vector>

#include "ATen/Functions.h"
#include "ATen/Parallel.h"
#include "ATen/TensorIndexing.h"
#include "char_training.h"
#include "gmock/gmock.h"
#include "program.h"
#include "ptqwatch/offline/quantize_model.h"
#include "support/temp_dir.h"

namespace ptqwatch::examples {
namespace mixture_test {

using ::testing::HasSubstr;

at::Tensor WeightOf(const torch::nn::Module& module, const std::string& name) {
  return module.named_parameters()[name + ".weight"];
}

TEST(Mixture, GivesEachTokenItsTwoLikeliestExperts) {
  torch::manual_seed(0);
  const int64_t experts = 5;
  Mixture mixture(/*width=*/6, /*hidden=*/24, experts);
  const at::Tensor x = at::randn({3, 4, 6});
  const at::Tensor out = mixture.forward(x, nullptr);
  ASSERT_EQ(out.sizes(), x.sizes());
  for (int64_t row = 0; row < 12; ++row) {
    const at::Tensor token = x.view({12, 6})[row];
    const at::Tensor scores = at::matmul(WeightOf(mixture, "router"), token).exp();
    const at::Tensor order = scores.argsort(0, /*descending=*/true);
    at::Tensor expected = at::zeros({6});
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t expert = order[i].item<int64_t>();
      const std::string name = "experts." + std::to_string(expert);
      const at::Tensor up = WeightOf(mixture, name + ".up");
      EXPECT_EQ(up.size(0), 12);  // half of the hidden width
      const at::Tensor hidden = at::gelu(at::matmul(up, token));
      expected += scores[expert] /
                  (scores[order[0].item<int64_t>()] + scores[order[1].item<int64_t>()]) *
                  at::matmul(WeightOf(mixture, name + ".down"), hidden);
    }
    EXPECT_TRUE(at::allclose(out.view({12, 6})[row], expected, 1e-4, 1e-6)) << row;
  }
}

TEST(Mixture, HasALossOfOneIfBalanced) {
  Mixture mixture(/*width=*/8, /*hidden=*/16, /*experts=*/8);
  const at::NoGradGuard no_grad;
  // Tokens along the axes, and a router that gives each the expert of its axis and the next one.
  at::Tensor router = WeightOf(mixture, "router");
  router.copy_(at::eye(8) + 0.5 * at::eye(8).roll(1, 0));
  at::Tensor balance;
  mixture.forward(at::eye(8), &balance);
  EXPECT_NEAR(balance.item<double>(), 1, 1e-5);
  // Adds to what it is given.
  mixture.forward(at::eye(8), &balance);
  EXPECT_NEAR(balance.item<double>(), 2, 1e-5);
  // All tokens choose the same two experts, nearly certainly the first: 8 * (1/2 * 1).
  at::Tensor collapsed;
  router.zero_();
  router[0].fill_(40);
  router[1].fill_(20);
  mixture.forward(at::eye(8), &collapsed);
  EXPECT_NEAR(collapsed.item<double>(), 4, 1e-3);
}

class MixtureTrainingTest : public ::testing::Test {
 protected:
  MixtureTrainingTest() {
    at::set_num_threads(1);  // threads that wait for each other are slow on a busy machine
    std::string text;
    for (int i = 0; i < 400; ++i) text += std::to_string(i * i) + " is a square\n";
    flags_.trainer.text = directory_.File("text");
    testing::WriteFile(flags_.trainer.text, text);
    flags_.width = 16;
    flags_.length = 8;
    flags_.batch = 4;
    flags_.experts = 4;
    flags_.probe_sequences = 8;
    flags_.calibration_sequences = 64;
  }

  testing::TempDir directory_;
  CharGptFlags flags_;
};

TEST_F(MixtureTrainingTest, LowersTheLoss) {
  CharTraining training(flags_);
  const double before = training.ValidationLoss();
  for (int step = 0; step < 60; ++step) training.Step(1e-2);
  EXPECT_LT(training.ValidationLoss(), 0.8 * before);
}

TEST_F(MixtureTrainingTest, MinimisesTheBalanceLossAndDoesNotReportIt) {
  // Experts that give 0 leave the router nothing but the balance loss.
  double losses[2];
  for (const int scale : {1, 100}) {
    CharTraining training(flags_);
    for (const auto& item : training.model().named_parameters()) {
      const at::NoGradGuard no_grad;
      if (item.key().find("experts") != std::string::npos) item.value().zero_();
      if (item.key().find("router") != std::string::npos) item.value().mul_(scale);
    }
    losses[scale == 100] = training.Gradients(/*sam_rho=*/0, [] {}).item<double>();
    const at::Tensor gradient = WeightOf(training.model(), "blocks_0.mlp.router").grad();
    EXPECT_GT(gradient.norm().item<double>(), 1e-6) << scale;
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST_F(MixtureTrainingTest, ShowsTheMonitorALayerForEachExpert) {
  CharTraining training(flags_);
  const auto subject = training.MakeSubject();
  const auto quantized = QuantizeModel(*subject);
  ASSERT_TRUE(quantized.ok()) << quantized.status();
  int64_t rows = 0;
  std::vector<std::string> names;
  for (const QuantizedLayer& layer : quantized->layers) {
    names.push_back(layer.name);
    if (layer.name.starts_with("blocks_1.mlp.") && layer.name.ends_with(".up.weight")) {
      rows += layer.tokens;
    }
  }
  for (const char* name :
       {"blocks_0.mlp.experts.0.up.weight", "blocks_1.mlp.experts.3.down.weight"}) {
    EXPECT_THAT(names, ::testing::Contains(name));
  }
  EXPECT_EQ(names.size(), 2 * (2 + 2 * 4));
  EXPECT_EQ(rows, 2 * flags_.calibration_sequences * flags_.length);
  const auto router = std::find_if(
      quantized->skipped.begin(), quantized->skipped.end(),
      [](const SkippedLayer& layer) { return layer.name == "blocks_1.mlp.router.weight"; });
  ASSERT_NE(router, quantized->skipped.end());
  EXPECT_THAT(router->reason, HasSubstr("top-k"));
}

TEST(CharGptFlags, RefuseMixturesThatNoRouterChoosesFrom) {
  const auto error = [](std::vector<const char*> words) -> std::string {
    words.insert(words.begin(), "char_gpt");
    try {
      const CharGptFlags flags =
          ParseCharGptFlags(static_cast<int>(words.size()), const_cast<char**>(words.data()), "");
      return "accepted " + std::to_string(flags.experts);
    } catch (const UsageError& refused) {
      return refused.what();
    }
  };
  EXPECT_EQ(error({}), "accepted 0");
  EXPECT_EQ(error({"--experts", "8"}), "accepted 8");
  for (const char* value : {"1", "-2", "3"}) {
    EXPECT_THAT(error({"--experts", value}),
                ::testing::AllOf(HasSubstr("--experts"), HasSubstr(value)));
  }
  EXPECT_THAT(error({"--experts", "8", "--model", "mlp"}), HasSubstr("--experts: 8 needs --model"));
  EXPECT_THAT(error({"--experts", "32"}), HasSubstr("--experts: 32 must be fewer than --width 32"));
}

}  // namespace mixture_test
}  // namespace ptqwatch::examples
