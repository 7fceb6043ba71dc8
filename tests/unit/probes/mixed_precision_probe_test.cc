#include "probes/mixed_precision_probe.h"

#include <gmock/gmock.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "unit/curvature/tanh_net.h"

namespace ptqwatch::internal {
namespace mixed_precision_probe_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Net = testing::TanhNet;
using enum QuantizationMethod;

std::vector<std::string> Names(const std::vector<RaisableLayer>& layers) {
  std::vector<std::string> names;
  for (const RaisableLayer& layer : layers) names.push_back(layer.name);
  return names;
}

TEST(ChooseBitPair, IsTheWatchedMethodAtItsFewestBitsAndTheNextMore) {
  const std::vector<QuantizerSpec> both = {{.method = kRtn, .bits = 2},
                                           {.method = kGptq, .bits = 8},
                                           {.method = kGptq, .bits = 4},
                                           {.method = kGptq, .bits = 3}};
  EXPECT_EQ(ChooseBitPair(both), (BitPair{3, 2}));
  const std::vector<QuantizerSpec> two = {{.method = kGptq, .bits = 3},
                                          {.method = kGptq, .bits = 2}};
  EXPECT_EQ(ChooseBitPair(two), (BitPair{1, 0}));
  // Another group size is no other bit-width.
  const std::vector<QuantizerSpec> groups = {{.method = kGptq, .bits = 3, .group_size = 64},
                                             {.method = kGptq, .bits = 3, .group_size = 32},
                                             {.method = kRtn, .bits = 4}};
  EXPECT_EQ(ChooseBitPair(groups), std::nullopt);
  // Nor do layers change their format.
  const std::vector<QuantizerSpec> formats = {
      {.method = kGptq, .bits = 3},
      {.method = kGptq, .bits = 4, .format = QuantizationFormat::kNvfp4}};
  EXPECT_EQ(ChooseBitPair(formats), std::nullopt);
  EXPECT_EQ(ChooseBitPair({}), std::nullopt);
}

TEST(RankLayers, PutsTheLargestSavingForABitFirstAndLeavesOutLosses) {
  EXPECT_THAT(Names(RankLayers({{"large", 0, 1024, 1.0},
                                {"small", 1, 8, 1.0 / 64},
                                {"worse", 2, 10, -0.1},
                                {"same", 3, 128, 0.125},
                                {"none", 4, 10, 0},
                                {"unknown", 5, 10, std::nan("")},
                                {"first", 6, 64, 0.125},
                                {"two bits", 7, 64, 0.25, 2},
                                {"fewer bits", 8, 10, 1.0, -1}})),
              ElementsAre("small", "first", "two bits", "large", "same"));
}

TEST(MixtureSizes, AreAtMostThreeUpToAQuarterOfTheLayers) {
  EXPECT_THAT(MixtureSizes(2, 2), ElementsAre(1));
  EXPECT_THAT(MixtureSizes(8, 8), ElementsAre(1, 2));
  EXPECT_THAT(MixtureSizes(16, 16), ElementsAre(1, 2, 4));
  EXPECT_THAT(MixtureSizes(48, 48), ElementsAre(3, 6, 12));
  EXPECT_THAT(MixtureSizes(48, 2), ElementsAre(1, 2));
  EXPECT_THAT(MixtureSizes(48, 0), ElementsAre());
}

class MixedPrecisionTest : public ::testing::Test {
 protected:
  MixedPrecisionTest() {
    net_.options.averaging.enabled = false;
    // The net's own answers are the targets, so errors of its weights make the loss worse.
    for (Batch& batch : net_.batches) {
      const at::Tensor h = at::linear(batch[0], net_.live[0].tensor, net_.live[1].tensor).tanh();
      const at::Tensor logits =
          at::linear(at::linear(h, net_.live[2].tensor).tanh(), net_.live[3].tensor);
      batch[1] = logits.argmax(-1);
    }
    net_.options.quantizers = {{.method = kGptq, .bits = 4, .group_size = 8},
                               {.method = kRtn, .bits = 3, .group_size = 8},
                               {.method = kGptq, .bits = 3, .group_size = 8}};
    // All tokens, whatever the change.
    net_.options.relative_stderr = 1e-9;
    net_.options.absolute_stderr_ratio = 0;
  }
  void Open() {
    auto suite = net_.Measure();
    ASSERT_TRUE(suite.ok()) << suite.status();
    suite_ = *std::move(suite);
    auto measured = suite_->Measure({}, {});
    ASSERT_TRUE(measured.ok()) << measured.status();
    measured_ = *std::move(measured);
    report_ = AssembleReport({}, measured_.results);
  }
  // As the probe measures them from the results so far.
  std::vector<MixedPrecisionReport> Mixtures() {
    const OptimizerState optimizer;
    const ProbeState state;
    const SnapshotPlace place;
    const ProbeResult result =
        suite_->probes().at(2)->Measure({.place = place,
                                         .optimizer = optimizer,
                                         .state = state,
                                         .earlier = absl::MakeSpan(measured_.results)},
                                        {});
    EXPECT_EQ(result.outcome.kind, ProbeOutcome::Kind::kOk);
    return std::get<MixedPrecisionResult>(result.value).mixtures;
  }
  const QuantizationResult& Quantization() const {
    return std::get<QuantizationResult>(measured_.results.at(0).value);
  }
  // The summed loss of all batches with these weights, by the replica alone.
  double SumOfLosses(const std::vector<Replica::Override>& weights) {
    double sum = 0;
    const auto lease = suite_->session().replica().Use(weights);
    EXPECT_TRUE(lease.ok()) << lease.status();
    for (const Batch& batch : suite_->session().probe()) {
      sum += suite_->session().replica().Losses(batch)->values.to(at::kDouble).sum().item<double>();
    }
    return sum;
  }

  Net net_;
  std::unique_ptr<ProbeSuite> suite_;
  Measured measured_;
  Report report_;
};

TEST_F(MixedPrecisionTest, MeasuresTheSwapOfTheBestLayer) {
  Open();
  ASSERT_EQ(report_.mixed_precision.size(), 1u);
  const MixedPrecisionReport& mixture = report_.mixed_precision[0];
  ASSERT_EQ(mixture.status, ProbeStatus::kOk) << mixture.status_detail;
  EXPECT_EQ(mixture.method, kGptq);
  EXPECT_EQ(mixture.bits, 3);
  EXPECT_EQ(mixture.raised_bits, 4);
  ASSERT_EQ(mixture.raised_layers.size(), 1u);
  const std::string& raised = mixture.raised_layers[0];
  const TensorTable& table = suite_->session().replica().table();

  std::vector<Replica::Override> swapped;
  double raised_parameters = 0;
  for (const Replica::Override& weight : Quantization().weights[2]) {
    const bool here = table.entries[static_cast<size_t>(weight.entry)].name == raised;
    if (!here) {
      swapped.push_back(weight);
      continue;
    }
    raised_parameters = static_cast<double>(weight.value.numel());
    for (const Replica::Override& finer : Quantization().weights[0]) {
      if (finer.entry == weight.entry) swapped.push_back(finer);
    }
  }
  ASSERT_EQ(swapped.size(), 2u);
  EXPECT_NEAR(*mixture.delta_nats, (SumOfLosses(swapped) - SumOfLosses({})) / 300, 1e-12);
  EXPECT_GT(*mixture.delta_stderr_nats, 0);
  EXPECT_DOUBLE_EQ(mixture.mean_bits, 3 + raised_parameters / (24 * 16 + 24 * 24));
  // Better than all at 3 bits, and not as good as all at 4.
  EXPECT_LT(*mixture.delta_nats, *report_.quantization[2].delta_nats);
  EXPECT_GT(*mixture.delta_nats, *report_.quantization[0].delta_nats);
}

TEST_F(MixedPrecisionTest, CountsTheBitsThatOverridesGive) {
  const QuantizerSpec six{.method = kGptq, .bits = 6, .group_size = 8};
  net_.options.overrides = {{"in.weight", six, "gptq3"}};
  Open();
  ASSERT_EQ(report_.mixed_precision.size(), 1u);
  const MixedPrecisionReport& mixture = report_.mixed_precision[0];
  // With 4 bits, in.weight would have fewer.
  EXPECT_THAT(mixture.raised_layers, ::testing::Not(::testing::Contains("in.weight")));
  EXPECT_EQ(mixture.raised_layers.size(), 1u);
  EXPECT_DOUBLE_EQ(mixture.mean_bits, (6.0 * 24 * 16 + 4.0 * 24 * 24) / (24 * 16 + 24 * 24));
}

TEST_F(MixedPrecisionTest, RaisesTheLayerThatCurvatureTells) {
  Open();
  ASSERT_EQ(report_.mixed_precision.size(), 1u);
  const MixedPrecisionReport& mixture = report_.mixed_precision[0];
  const auto& low = report_.quantization[2];
  const auto& high = report_.quantization[0];
  double best = 0;
  double saving = 0;
  std::string name;
  for (size_t i = 0; i < low.layers.size(); ++i) {
    const double parameters = low.layers[i].name == "in.weight" ? 24 * 16 : 24 * 24;
    const double saved = *low.layers[i].gradient_term_nats + *low.layers[i].curvature_term_nats -
                         *high.layers[i].gradient_term_nats - *high.layers[i].curvature_term_nats;
    if (saved / parameters <= best) continue;
    best = saved / parameters;
    saving = saved;
    name = low.layers[i].name;
  }
  EXPECT_THAT(mixture.raised_layers, ElementsAre(name));
  EXPECT_DOUBLE_EQ(*mixture.predicted_delta_nats, *low.predicted_delta_nats - saving);
}

TEST_F(MixedPrecisionTest, EvaluatesNoFullPrecisionLossAgain) {
  int evaluations = 0;
  net_.losses = [&evaluations, losses = net_.losses](const TensorMap& p, const Batch& b) {
    ++evaluations;
    return losses(p, b);
  };
  Open();
  ASSERT_EQ(suite_->probes().at(2)->name(), MixedPrecisionProbe::kName);
  evaluations = 0;
  EXPECT_EQ(Mixtures(), report_.mixed_precision);
  EXPECT_EQ(evaluations, 3);
}

TEST_F(MixedPrecisionTest, ChoosesNoLayersByAPredictionThatIsWrong) {
  Open();
  auto& curvature = std::get<CurvatureResult>(measured_.results.at(1).value);
  curvature.errors.at(2)->delta_nats = -curvature.errors.at(2)->predicted_delta_nats;
  const auto mixtures = Mixtures();
  ASSERT_EQ(mixtures.size(), 1u);
  EXPECT_EQ(mixtures[0].status, ProbeStatus::kDisabled);
  EXPECT_THAT(mixtures[0].status_detail,
              ::testing::StartsWith("no layers are chosen at this snapshot: the second-order"));
  EXPECT_THAT(mixtures[0].raised_layers, ::testing::IsEmpty());
  EXPECT_FALSE(mixtures[0].delta_nats);
}

TEST_F(MixedPrecisionTest, SaysSoIfTheWeightsDidNotFit) {
  Open();
  auto& quantization = std::get<QuantizationResult>(measured_.results.at(0).value);
  quantization.weights[0].clear();
  quantization.quantizers[0].status_detail = "weights of 3 quantizers do not fit";
  const auto mixtures = Mixtures();
  ASSERT_EQ(mixtures.size(), 1u);
  EXPECT_EQ(mixtures[0].status, ProbeStatus::kDisabled);
  EXPECT_THAT(mixtures[0].status_detail, HasSubstr("do not fit"));
  EXPECT_FALSE(mixtures[0].delta_nats);
}

TEST_F(MixedPrecisionTest, ComesWithCurvatureAlone) {
  Open();
  const Plan without{.probe_batches = 3, .calibration_batches = 3, .curvature_every = 2};
  EXPECT_TRUE(testing::MeasureReport(*suite_, nullptr, {.plan = without}).mixed_precision.empty());
  suite_->Disable("curvature", "off");
  EXPECT_TRUE(testing::MeasureReport(*suite_).mixed_precision.empty());
}

TEST_F(MixedPrecisionTest, IsAbsentWithOneBitWidthOrIfSwitchedOff) {
  net_.options.mixed_precision = false;
  Open();
  EXPECT_TRUE(report_.mixed_precision.empty());
  EXPECT_EQ(suite_->probes().size(), 3u);
  Net other;  // rtn 3, gptq 4
  const auto suite = other.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  EXPECT_TRUE(Net::Run(**suite).mixed_precision.empty());
}

}  // namespace mixed_precision_probe_test
}  // namespace ptqwatch::internal
