// Mixtures of experts, in which a batch may send no token to an expert.
#include <gmock/gmock.h>

#include <string>

#include "ATen/ops/argsort.h"
#include "ATen/ops/index_add.h"
#include "ATen/ops/index_select.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/relu.h"
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

}  // namespace experts_test
}  // namespace ptqwatch::internal
