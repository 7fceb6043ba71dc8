// Matrices of which rows are looked up, alone or tied to a product.
#include <gmock/gmock.h>

#include "ATen/ops/embedding.h"
#include "ATen/ops/eye.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/matmul.h"
#include "capture/model_quantizer.h"
#include "capture_fixture.h"

namespace ptqwatch::internal {
namespace embeddings_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

at::Tensor IdsOf(const Batch& batch) {
  return (batch[0].sum(-1).abs() * 4).to(at::kLong).clamp(0, 8);
}

std::vector<std::string> LayersOf(const CapturePlan& plan) {
  std::vector<std::string> names;
  for (const CoveredLayer& layer : plan.layers) names.push_back(layer.name);
  return names;
}

/// Looks rows of `table` [9, 6] up, and multiplies them with `body` and with `head`.
Fixture MakeUntied() {
  return Fixture(
      {{"table", Random({9, 6}, 3)}, {"body", Random({6, 6}, 4)}, {"head", Random({9, 6}, 5)}},
      [](const TensorMap& w, const Batch& b) -> LossValues {
        const at::Tensor rows = at::embedding(w.at("table"), IdsOf(b));
        return at::linear(at::linear(rows, w.at("body")), w.at("head")).sum(-1);
      });
}

/// Looks rows of `table` [9, 6] up, multiplies them with `body`, and multiplies that with `table`
/// as `use` says.
Fixture MakeTied(std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> use) {
  return Fixture({{"table", Random({9, 6}, 3)}, {"body", Random({6, 6}, 4)}},
                 [use = std::move(use)](const TensorMap& w, const Batch& b) -> LossValues {
                   const at::Tensor rows = at::embedding(w.at("table"), IdsOf(b));
                   return use(at::linear(rows, w.at("body")), w.at("table")).sum(-1);
                 });
}

TEST(Embeddings, AreLeftOutUnlessTheyAreAskedFor) {
  Fixture fixture = MakeUntied();
  CapturePlan plan = fixture.Plan();
  EXPECT_THAT(LayersOf(plan), ElementsAre("body", "head"));
  EXPECT_EQ(Reasons(plan)["table"], "embedding");
  EXPECT_FALSE(plan.Unseen().has_value());

  plan = fixture.Plan({.embeddings = true});
  EXPECT_THAT(LayersOf(plan), ElementsAre("table", "body"));
  EXPECT_EQ(plan.covered_parameters, 54 + 36);
  plan = fixture.Plan({.exclude = {"tab*"}, .embeddings = true});
  EXPECT_EQ(Reasons(plan)["table"], "excluded by the pattern 'tab*'");
}

TEST(Embeddings, HaveTheIdentityForAGramAndAreRoundedToNearest) {
  Fixture fixture = MakeUntied();
  const CapturePlan plan = fixture.Plan({.embeddings = true});
  const std::vector<GramStatistics> grams = fixture.Grams(plan);
  ASSERT_EQ(grams.size(), 2u);
  ExpectGram(grams[0], at::eye(6, at::kDouble));
  EXPECT_EQ(grams[0].tokens, 6);
  EXPECT_EQ(grams[1].tokens, 24);

  const auto quantize = [&](QuantizationMethod method) {
    const QuantizerSpec spec = {.method = method, .bits = 3, .group_size = 3};
    const std::vector<LayerSpecs> specs = {LayerSpecs(plan.layers.size(), spec)};
    const ModelQuantizer quantizer(
        *fixture.replica, plan, fixture.batches, fixture.backend,
        {.mode = CalibrationMode::kOneShot, .max_gram_bytes = int64_t{1} << 30});
    ExecutionContext context;
    std::vector<QuantizedWeight> layers(plan.layers.size());
    quantizer.Run(
        specs,
        [&](size_t, size_t layer, const LayerGram*, QuantizedMatrix result) {
          layers[layer] = std::move(result.weight);
        },
        context);
    return layers;
  };
  const std::vector<QuantizedWeight> rtn = quantize(QuantizationMethod::kRtn);
  for (const auto method : {QuantizationMethod::kGptq, QuantizationMethod::kAwq}) {
    const std::vector<QuantizedWeight> other = quantize(method);
    EXPECT_EQ(other[0].status, LayerStatus::kOk);
    EXPECT_EQ(other[0].dequantized, rtn[0].dequantized);
    EXPECT_NE(other[1].dequantized, rtn[1].dequantized);
  }
}

TEST(Embeddings, TiedToTheOutputHeadHaveItsStatistics) {
  Fixture fixture = MakeTied([](auto& x, auto& table) { return at::linear(x, table); });
  EXPECT_EQ(Reasons(fixture.Plan({}))["table"], "output head, tied to an embedding");
  EXPECT_EQ(Reasons(fixture.Plan({.embeddings = true}))["table"],
            "output head, tied to an embedding");
  for (const bool embeddings : {false, true}) {
    const CapturePlan plan = fixture.Plan({.output_head = true, .embeddings = embeddings});
    EXPECT_THAT(LayersOf(plan), ElementsAre("body", "table"));
    std::vector<at::Tensor> inputs;
    for (const Batch& batch : fixture.batches) {
      const at::Tensor rows = at::embedding(fixture.replica->loaded(0), IdsOf(batch));
      inputs.push_back(at::linear(rows, fixture.replica->loaded(1)));
    }
    ExpectGram(fixture.Grams(plan)[1], NaiveGram(inputs));
  }
}

TEST(Embeddings, TiedToAnotherProductNeedTheirOption) {
  Fixture fixture({{"table", Random({9, 6}, 3)}, {"head", Random({2, 9}, 4)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    const at::Tensor rows = at::embedding(w.at("table"), IdsOf(b));
                    return at::linear(at::linear(rows, w.at("table")), w.at("head")).sum(-1);
                  });
  const CapturePlan plan = fixture.Plan();
  EXPECT_THAT(LayersOf(plan), ElementsAre("head"));
  EXPECT_EQ(Reasons(plan)["table"], "also used as: embedding");
  EXPECT_FALSE(plan.Unseen().has_value());
  EXPECT_THAT(LayersOf(fixture.Plan({.embeddings = true})), ElementsAre("table"));
}

TEST(Embeddings, ThatAreAlsoUsedInAnUnseenWayAreLeftOut) {
  Fixture fixture = MakeTied([](auto& x, auto& table) {
    at::Tensor doubled = table.clone();
    doubled.mul_(2);
    return at::linear(x, doubled) + at::linear(x, table);
  });
  const CapturePlan plan = fixture.Plan({.output_head = true, .embeddings = true});
  EXPECT_THAT(LayersOf(plan), ElementsAre("body"));
  EXPECT_THAT(Reasons(plan)["table"], HasSubstr("changed"));
  EXPECT_TRUE(plan.Unseen().has_value());
}

TEST(Embeddings, HaveTheirReasonIfAHeadTakesSomeRows) {
  Fixture fixture = MakeTied([](const at::Tensor& x, const at::Tensor& table) {
    return at::linear(x, table.narrow(0, 0, 4));
  });
  const CapturePlan plan = fixture.Plan();
  EXPECT_EQ(Reasons(plan).at("table (rest)"), kEmbedding);
  EXPECT_TRUE(plan.unseen.empty());
}

TEST(Embeddings, AreLeftOutIfACopyIsChanged) {
  Fixture fixture({{"table", Random({9, 6}, 3)}, {"head", Random({9, 6}, 5)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    const at::Tensor twice = w.at("table").clone().mul_(2);
                    return at::linear(at::embedding(twice, IdsOf(b)), w.at("head")).sum(-1);
                  });
  const CapturePlan plan = fixture.Plan({.output_head = true, .embeddings = true});
  EXPECT_THAT(LayersOf(plan), ElementsAre("head"));
  EXPECT_THAT(Reasons(plan).at("table"), HasSubstr("changed"));
}

}  // namespace embeddings_test
}  // namespace ptqwatch::internal
