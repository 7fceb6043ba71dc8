// Mixtures of experts, in which a batch may send no token to an expert.
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <utility>

#include "ATen/TensorIndexing.h"
#include "ATen/ops/_grouped_mm.h"
#include "ATen/ops/argsort.h"
#include "ATen/ops/bmm.h"
#include "ATen/ops/full.h"
#include "ATen/ops/index_add.h"
#include "ATen/ops/index_select.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/relu.h"
#include "ATen/ops/softmax.h"
#include "ATen/ops/topk.h"
#include "ATen/ops/zeros.h"
#include "ATen/ops/zeros_like.h"
#include "capture_fixture.h"

namespace ptqwatch::internal {
namespace experts_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kExperts = 3;

// How the loop over the experts treats one without a token.
enum class Idle { kSkipped, kMultiplied };

// Sorts the tokens by expert, whose number is the first input, and cuts them apart.
Fixture::Losses Route(Idle idle) {
  return [idle](const TensorMap& w, const Batch& b) -> LossValues {
    const at::Tensor x = b[0].view({-1, 6});
    const at::Tensor expert = x.select(1, 0).to(at::kLong);
    const at::Tensor order = at::argsort(expert);
    const at::Tensor sorted = at::index_select(x, 0, order);
    at::Tensor y = at::zeros_like(x);
    int64_t begin = 0;
    for (int64_t e = 0; e < kExperts; ++e) {
      const auto count = (expert == e).sum().item<int64_t>();
      if (count == 0 && idle == Idle::kSkipped) continue;
      const at::Tensor mine = sorted.narrow(0, begin, count);
      const std::string name = std::to_string(e);
      const at::Tensor gate = at::relu(at::linear(mine, w.at("gate" + name)));
      const at::Tensor h = gate * at::linear(mine, w.at("up" + name));
      y = at::index_add(y, 0, order.narrow(0, begin, count), at::linear(h, w.at("down" + name)));
      begin += count;
    }
    return at::linear(y, w.at("out")).sum(-1).view(b[0].sizes().slice(0, 2));
  };
}

// Batches of four tokens each, for these experts.
std::vector<Batch> TokensFor(const std::vector<std::vector<int>>& experts) {
  std::vector<Batch> batches;
  for (const std::vector<int>& of : experts) {
    at::Tensor x = Random({2, 2, 6}, 10 + batches.size());
    for (int64_t i = 0; i < 4; ++i) {
      x[i / 2][i % 2][0] = of[static_cast<size_t>(i)];
    }
    batches.push_back({x});
  }
  return batches;
}

std::vector<NamedTensor> Parameters() {
  std::vector<NamedTensor> parameters;
  uint64_t seed = 1;
  for (const char* name : {"gate", "up", "down"}) {
    for (int64_t e = 0; e < kExperts; ++e) {
      parameters.push_back({name + std::to_string(e), Random({6, 6}, ++seed)});
    }
  }
  parameters.push_back({"out", Random({2, 6}, ++seed)});
  return parameters;
}

std::vector<std::string> Names(const CapturePlan& plan) {
  std::vector<std::string> names;
  for (const CoveredLayer& layer : plan.layers) names.push_back(layer.name);
  return names;
}

class ExpertsTest : public ::testing::TestWithParam<Idle> {};

TEST_P(ExpertsTest, AreLayersWhicheverBatchHasTheirTokens) {
  Fixture all(TokensFor({{0, 1, 2, 0}}), Parameters(), Route(GetParam()));
  Fixture late(TokensFor({{1, 1, 1, 1}, {0, 0, 1, 0}, {0, 1, 2, 2}}), Parameters(),
               Route(GetParam()));
  const CapturePlan plan = late.Plan();
  EXPECT_THAT(Names(plan), ElementsAre("gate0", "up0", "down0", "gate1", "up1", "down1", "gate2",
                                       "up2", "down2", "out"));
  EXPECT_EQ(Names(all.Plan()), Names(plan));
  EXPECT_THAT(plan.skipped, ::testing::IsEmpty());
  ASSERT_EQ(plan.gram_inputs.size(), 7u);
  const std::vector<GramStatistics> grams = late.Grams(plan);
  const std::vector<int64_t> tokens = {4, 6, 2};
  for (size_t e = 0; e < kExperts; ++e) {
    EXPECT_EQ(plan.layers[3 * e].gram, plan.layers[3 * e + 1].gram);
    EXPECT_EQ(grams[static_cast<size_t>(plan.layers[3 * e].gram)].tokens, tokens[e]);
  }
}

TEST_P(ExpertsTest, MayGetNoTokensAtAll) {
  Fixture fixture(TokensFor({{1, 1, 1, 1}, {1, 1, 1, 1}}), Parameters(), Route(GetParam()));
  const CapturePlan plan = fixture.Plan();
  const std::vector<GramStatistics> grams = fixture.Grams(plan);
  if (GetParam() == Idle::kSkipped) {
    EXPECT_THAT(Names(plan), ElementsAre("gate1", "up1", "down1", "out"));
    EXPECT_THAT(Reasons(plan)["gate0"], HasSubstr("no operator of the forward pass takes it"));
  } else {
    ASSERT_EQ(plan.layers.size(), 10u);
    EXPECT_EQ(grams[static_cast<size_t>(plan.layers[0].gram)].tokens, 0);
    EXPECT_EQ(grams[static_cast<size_t>(plan.layers[3].gram)].tokens, 8);
  }
}

INSTANTIATE_TEST_SUITE_P(Idle, ExpertsTest, ::testing::Values(Idle::kSkipped, Idle::kMultiplied));

// How the picked matrices [S, a, b] are multiplied with the tokens, of which each is a row.
enum class Factor { kLeft, kRight, kRightTurned, kLeftCopied };

class PickedExpertsTest : public ::testing::TestWithParam<Factor> {
 protected:
  static at::Tensor Multiply(const at::Tensor& picked, const at::Tensor& x) {
    switch (GetParam()) {
      case Factor::kLeft:
        return at::bmm(picked, x.unsqueeze(-1)).squeeze(-1);
      case Factor::kLeftCopied:
        return at::bmm(picked.to(at::kDouble), x.to(at::kDouble).unsqueeze(-1))
            .squeeze(-1)
            .to(at::kFloat);
      case Factor::kRight:
        return at::bmm(x.unsqueeze(1), picked).squeeze(1);
      case Factor::kRightTurned:
        return at::bmm(x.unsqueeze(1), picked.transpose(1, 2)).squeeze(1);
    }
    return {};
  }
};

// As transformers' batched_mm: a copy of a token's expert for each token.
TEST_P(PickedExpertsTest, AreLayersWithTheTokensThatPickThem) {
  const bool transposed = GetParam() == Factor::kRight;
  const std::vector<int64_t> sizes =
      transposed ? std::vector<int64_t>{3, 6, 4} : std::vector<int64_t>{3, 4, 6};
  Fixture fixture(TokensFor({{0, 2, 2, 0}, {1, 0, 2, 2}}),
                  {{"experts", Random(sizes, 3)}, {"out", Random({2, 4}, 4)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    const at::Tensor x = b[0].view({-1, 6});
                    const at::Tensor expert = x.select(1, 0).to(at::kLong);
                    const at::Tensor y = Multiply(w.at("experts").index({expert}), x);
                    return at::linear(y, w.at("out")).sum(-1).view({2, 2});
                  });
  const CapturePlan plan = fixture.Plan();
  ASSERT_EQ(plan.layers.size(), 4u) << ::testing::PrintToString(Reasons(plan));
  EXPECT_THAT(Names(plan),
              ::testing::UnorderedElementsAre("experts[0]", "experts[1]", "experts[2]", "out"));
  EXPECT_THAT(plan.skipped, ::testing::IsEmpty());
  const std::vector<GramStatistics> grams = fixture.Grams(plan);
  for (const CoveredLayer& layer : plan.layers) {
    if (layer.name == "out") continue;
    EXPECT_EQ(layer.outputs, 4);
    EXPECT_EQ(layer.inputs, 6);
    EXPECT_EQ(layer.transposed, transposed);
    const double expert = layer.name[8] - '0';
    std::vector<at::Tensor> rows;
    for (const Batch& batch : fixture.batches) {
      const at::Tensor x = batch[0].view({-1, 6});
      rows.push_back(x.index({x.select(1, 0) == expert}));
    }
    ExpectGram(grams[static_cast<size_t>(layer.gram)], NaiveGram(rows));
  }
}

INSTANTIATE_TEST_SUITE_P(Factor, PickedExpertsTest,
                         ::testing::Values(Factor::kLeft, Factor::kRight, Factor::kRightTurned,
                                           Factor::kLeftCopied));

using Use = std::function<at::Tensor(const at::Tensor& w, const at::Tensor& x)>;

// Why the stack "w" [3, 4, 6] is left out, beside an output head; empty if it is covered.
std::string WhyLeftOut(Use use) {
  Fixture fixture({{"w", Random({3, 4, 6}, 3)}, {"out", Random({2, 6}, 4)}},
                  [use = std::move(use)](const TensorMap& w, const Batch& b) -> LossValues {
                    const at::Tensor y = use(w.at("w"), b[0]).sum();
                    return y + at::linear(b[0], w.at("out")).sum(-1);
                  });
  const CapturePlan plan = fixture.Plan();
  EXPECT_EQ(plan.Unseen().has_value(), !Reasons(plan)["w"].empty());
  return Reasons(plan)["w"];
}

TEST(PickedExperts, AreUnseenIfTheirProductsAre) {
  const at::Tensor index = at::zeros({3}, at::kLong);
  const auto columns = [](const at::Tensor& x) { return x.transpose(1, 2).contiguous(); };
  EXPECT_THAT(WhyLeftOut([&](auto& w, auto& x) {
                return x.narrow(1, 0, 1) + w.index({index}).narrow(1, 0, 1);
              }),
              HasSubstr("an index picks parts of it"));
  // A token has two experts.
  EXPECT_THAT(WhyLeftOut([&](auto& w, auto& x) {
                return at::matmul(w.index({index.view({3, 1}).expand({3, 2})}),
                                  columns(x).view({3, 1, 6, 4}));
              }),
              HasSubstr("an index picks parts of it"));
  EXPECT_THAT(WhyLeftOut([&](auto& w, auto& x) {
                return at::matmul(w.index({index.narrow(0, 0, 1)}), columns(x));
              }),
              HasSubstr("only a part or a reshaped form"));
  EXPECT_THAT(
      WhyLeftOut([&](auto& w, auto& x) { return at::matmul(w, columns(x).narrow(0, 0, 1)); }),
      HasSubstr("only a part or a reshaped form"));
  EXPECT_THAT(WhyLeftOut([&](auto& w, auto& x) {
                at::Tensor picked = w.index({index});
                picked.mul_(2);
                return at::bmm(picked.to(at::kDouble), columns(x).to(at::kDouble));
              }),
              HasSubstr("a copy of it that was changed"));
}

TEST(PickedExperts, AreFollowedThroughTransposedCopiesAndKeepTheirIndex) {
  Fixture fixture({{"w", Random({3, 4, 6}, 3)}, {"out", Random({2, 6}, 4)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    const at::Tensor index = at::zeros({3}, at::kLong);
                    index[2] = 1;
                    const at::Tensor none = w.at("w").index({at::zeros({0}, at::kLong)});
                    const at::Tensor turned = w.at("w").index({index}).transpose(1, 2).contiguous();
                    index.zero_();
                    const at::Tensor y = at::bmm(b[0], turned).sum() + none.sum();
                    return y + at::linear(b[0], w.at("out")).sum(-1);
                  });
  const CapturePlan plan = fixture.Plan();
  EXPECT_THAT(Names(plan), ElementsAre("w[0]", "w[1]", "out"));
  EXPECT_FALSE(plan.layers[0].transposed);
  const std::vector<GramStatistics> grams = fixture.Grams(plan);
  std::vector<at::Tensor> rows;
  for (const Batch& batch : fixture.batches) rows.push_back(batch[0].narrow(0, 0, 2));
  ExpectGram(grams[static_cast<size_t>(plan.layers[0].gram)], NaiveGram(rows));
}

// Every token goes to every expert, which have two matrices with common inputs.
TEST(StackedExperts, AreLayersOfABatchedProduct) {
  for (const bool weight_first : {false, true}) {
    Fixture fixture(
        {{"gate", Random({3, 4, 6}, 3)}, {"up", Random({3, 4, 6}, 5)}, {"out", Random({2, 4}, 4)}},
        [&](const TensorMap& w, const Batch& b) -> LossValues {
          const at::Tensor x = (b[0] + 1).view({1, 12, 6}).expand({3, 12, 6}).contiguous();
          const auto multiply = [&](const char* name) {
            const at::Tensor& experts = w.at(name);
            return weight_first ? at::bmm(experts, x.transpose(1, 2)).transpose(1, 2)
                                : at::bmm(x, experts.transpose(1, 2));
          };
          const at::Tensor gate = multiply("gate");
          const at::Tensor h = gate * multiply("up");
          return at::linear(h.sum(0), w.at("out")).sum(-1).view({3, 4});
        });
    const CapturePlan plan = fixture.Plan();
    EXPECT_THAT(Names(plan),
                ElementsAre("gate[0]", "gate[1]", "gate[2]", "up[0]", "up[1]", "up[2]", "out"));
    EXPECT_EQ(plan.gram_inputs.size(), 4u) << "gate and up share their inputs";
    EXPECT_EQ(plan.covered_parameters, 2 * 3 * 4 * 6 + 2 * 4);
    EXPECT_EQ(plan.Unseen(), std::nullopt);
    ExpectGram(fixture.Grams(plan)[0],
               NaiveGram({fixture.batches[0][0] + 1, fixture.batches[1][0] + 1}));
  }
}

// As torchtitan and transformers' grouped_mm: rows sorted by expert, and copies in another dtype.
class GroupedExpertsTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    try {
      at::_grouped_mm(at::zeros({4, 8}), at::zeros({1, 8, 4}), at::full({1}, 4, at::kInt));
    } catch (const std::exception& error) {
      GTEST_SKIP() << "LibTorch has no _grouped_mm for CPUs: " << error.what();
    }
  }
};

TEST_P(GroupedExpertsTest, HaveTheRowsUpToTheirEnds) {
  const bool copied = GetParam();
  Fixture fixture(
      std::vector<Batch>{{Random({1, 12, 8}, 1)}, {Random({1, 12, 8}, 2)}},
      {{"gate", Random({3, 4, 8}, 3)}, {"up", Random({3, 4, 8}, 5)}, {"out", Random({2, 4}, 4)}},
      [copied](const TensorMap& w, const Batch& b) -> LossValues {
        const at::Tensor x = b[0].view({12, 8});
        const at::Tensor ends = at::full({3}, 5, at::kInt);  // none for [1] and [2]
        const auto multiply = [&](const char* name) {
          at::Tensor experts = w.at(name);
          if (copied) experts = experts.to(at::kBFloat16).to(at::kFloat);
          return at::_grouped_mm(x, experts.transpose(-2, -1), ends).narrow(0, 0, 5);
        };
        const at::Tensor gate = multiply("gate");
        const at::Tensor h = gate * multiply("up");
        return at::linear(h, w.at("out")).sum(-1).view({1, 5});
      });
  const CapturePlan plan = fixture.Plan();
  EXPECT_THAT(Names(plan),
              ElementsAre("gate[0]", "gate[1]", "gate[2]", "up[0]", "up[1]", "up[2]", "out"));
  EXPECT_EQ(plan.layers[0].gram, plan.layers[3].gram);
  const std::vector<GramStatistics> grams = fixture.Grams(plan);
  const auto rows = [&](size_t batch) { return fixture.batches[batch][0][0].narrow(0, 0, 5); };
  ExpectGram(grams[static_cast<size_t>(plan.layers[0].gram)], NaiveGram({rows(0), rows(1)}));
  EXPECT_EQ(grams[static_cast<size_t>(plan.layers[1].gram)].tokens, 0);
}

TEST_P(GroupedExpertsTest, WithoutEndsEachHasItsBatch) {
  const bool copied = GetParam();
  Fixture fixture(std::vector<Batch>{{Random({3, 4, 8}, 1)}},
                  {{"experts", Random({3, 4, 8}, 3)}, {"out", Random({2, 4}, 4)}},
                  [copied](const TensorMap& w, const Batch& b) -> LossValues {
                    at::Tensor experts = w.at("experts");
                    if (copied) experts = experts.to(at::kBFloat16).to(at::kFloat);
                    const at::Tensor y = at::_grouped_mm(b[0], experts.transpose(-2, -1));
                    return at::linear(y, w.at("out")).sum(-1);
                  });
  const CapturePlan plan = fixture.Plan();
  EXPECT_THAT(Names(plan), ElementsAre("experts[0]", "experts[1]", "experts[2]", "out"));
  const std::vector<GramStatistics> grams = fixture.Grams(plan);
  for (int64_t e = 0; e < 3; ++e) {
    ExpectGram(grams[static_cast<size_t>(plan.layers[static_cast<size_t>(e)].gram)],
               NaiveGram({fixture.batches[0][0][e]}));
  }
}

INSTANTIATE_TEST_SUITE_P(Copied, GroupedExpertsTest, ::testing::Bool());

TEST(UnseenWeights, AreSharesOfTheMatricesThatWouldBeQuantized) {
  const auto plan_of = [](LayerSelection selection) {
    return Fixture({{"mixed", Random({6, 6}, 3)},
                    {"seen", Random({3, 6}, 4)},
                    {"table", Random({50, 6}, 5)},
                    {"out", Random({2, 6}, 6)}},
                   [](const TensorMap& w, const Batch& b) -> LossValues {
                     const at::Tensor row =
                         at::index_select(w.at("table"), 0, at::zeros({1}, at::kLong));
                     const at::Tensor x = b[0] + row;
                     const at::Tensor y =
                         at::linear(x, w.at("mixed") * 2).sum() + at::linear(x, w.at("seen")).sum();
                     return y + at::linear(x, w.at("out")).sum(-1);
                   })
        .Plan(std::move(selection));
  };
  const std::optional<UnseenWeights> unseen = plan_of({}).Unseen();
  ASSERT_TRUE(unseen.has_value());
  EXPECT_DOUBLE_EQ(unseen->ratio, 36.0 / (36 + 18));
  EXPECT_EQ(unseen->largest, "mixed");
  EXPECT_THAT(unseen->reason, HasSubstr("goes into aten::mul"));
  EXPECT_EQ(plan_of({.exclude = {"mixed"}}).Unseen(), std::nullopt);
}

// A router, and a matrix whose output the router's scores only scale.
Fixture Routed() {
  return Fixture(
      {{"gate", Random({3, 6}, 3)}, {"up", Random({3, 6}, 5)}, {"out", Random({2, 3}, 4)}},
      [](const TensorMap& w, const Batch& b) -> LossValues {
        const at::Tensor logits = at::linear(b[0], w.at("gate")).to(at::kDouble);
        const at::Tensor scores = at::softmax(logits, -1) + 0.5;
        const auto [weights, chosen] = at::topk(scores, 1, -1);
        const at::Tensor h = at::linear(b[0], w.at("up")) * weights.sum(-1, true).to(at::kFloat);
        return at::linear(h, w.at("out")).sum(-1);
      });
}

TEST(Routers, AreLeftOutUnlessTheyAreAskedFor) {
  Fixture fixture = Routed();
  CapturePlan plan = fixture.Plan();
  EXPECT_THAT(Names(plan), ElementsAre("up", "out"));
  EXPECT_THAT(Reasons(plan)["gate"], HasSubstr("router: its output goes into a top-k"));
  plan = Routed().Plan({.output_head = true, .routers = true});
  EXPECT_THAT(Names(plan), ElementsAre("gate", "up", "out"));
}

TEST(Routers, AreNeitherPoolsNorPartsOfAResidualStream) {
  for (const bool pool : {false, true}) {
    Fixture fixture(
        {{"down", Random({6, 12}, 3)}, {"up", Random({12, 6}, 5)}, {"out", Random({2, 6}, 4)}},
        [pool](const TensorMap& w, const Batch& b) -> LossValues {
          const at::Tensor h = at::linear(at::relu(at::linear(b[0], w.at("up"))), w.at("down"));
          const at::Tensor y = pool ? std::get<0>(at::topk(h, 2, 1))
                                    : std::get<0>(at::topk((b[0] + h).abs(), 3, -1));
          return at::linear(h, w.at("out")).sum(-1) + y.sum();
        });
    EXPECT_EQ(fixture.Plan().layers.size(), 3u);
  }
}

TEST(Routers, AreNeitherTheLastProductNorWiderThanTheirInput) {
  for (const bool wide : {false, true}) {
    Fixture fixture(
        {{"w", Random({wide ? 8 : 3, 6}, 3)}, {"out", Random({2, 6}, 4)}},
        [wide](const TensorMap& w, const Batch& b) -> LossValues {
          const at::Tensor first = wide ? at::zeros({1}) : at::linear(b[0], w.at("out"));
          const at::Tensor y = std::get<0>(at::topk(at::linear(b[0], w.at("w")), 2, -1));
          const at::Tensor last = wide ? at::linear(b[0], w.at("out")) : at::zeros({1});
          return (first.sum() + last.sum() + y.sum(-1));
        });
    EXPECT_EQ(fixture.Plan().layers.size(), 2u);
  }
}

}  // namespace experts_test
}  // namespace ptqwatch::internal
