// Parameters that hold the weights of several layers.
#include <gmock/gmock.h>

#include "ATen/ops/equal.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/relu.h"
#include "capture_fixture.h"

namespace ptqwatch::internal {
namespace stacked_weights_test {

using ::testing::HasSubstr;

// Weights of several layers in one parameter, as trainers in C keep them.
TEST(StackedWeights, AreLayersOfTheirOwn) {
  Fixture fixture({{"qkvw", Random({2, 9, 6}, 3)}, {"outw", Random({2, 6, 3}, 4)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    at::Tensor x = b[0];
                    for (int64_t l = 0; l < 2; ++l) {
                      const at::Tensor qkv = at::linear(x, w.at("qkvw").select(0, l));
                      x = x + at::linear(at::relu(qkv.narrow(-1, 0, 3)), w.at("outw").select(0, l));
                    }
                    return x.sum(-1);
                  });
  const CapturePlan plan = fixture.Plan();
  ASSERT_EQ(plan.layers.size(), 4u) << ::testing::PrintToString(Reasons(plan));
  std::vector<std::string> names;
  for (const CoveredLayer& layer : plan.layers) {
    names.push_back(layer.name);
    EXPECT_EQ(fixture.replica->name(layer.entry), layer.name);
    EXPECT_FALSE(layer.transposed);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("qkvw[0]", "outw[0]", "qkvw[1]", "outw[1]"));
  EXPECT_EQ(plan.layers[2].outputs, 9);
  EXPECT_EQ(plan.layers[2].inputs, 6);
  EXPECT_EQ(plan.covered_parameters, 2 * 9 * 6 + 2 * 6 * 3);
  EXPECT_THAT(plan.skipped, ::testing::IsEmpty());
  EXPECT_TRUE(at::equal(fixture.replica->loaded(plan.layers[2].entry),
                        fixture.replica->loaded(0).select(0, 1)));
  ExpectGram(fixture.Grams(plan)[0], NaiveGram({fixture.batches[0][0], fixture.batches[1][0]}));
}

TEST(StackedWeights, AreNamedByTheirIndices) {
  Fixture fixture({{"w", Random({2, 12, 6}, 3)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    const at::Tensor one = w.at("w").select(0, 1);
                    return (at::linear(b[0], one.narrow(0, 0, 4)) +
                            at::matmul(b[0], one.narrow(0, 4, 6).view({6, 6})).narrow(-1, 0, 4) +
                            at::linear(b[0], w.at("w").view({24, 6}).narrow(0, 0, 4)))
                        .sum(-1);
                  });
  const CapturePlan plan = fixture.Plan();
  std::map<std::string, bool> layers;
  for (const CoveredLayer& layer : plan.layers) layers[layer.name] = layer.transposed;
  EXPECT_THAT(layers, ::testing::UnorderedElementsAre(::testing::Pair("w[1][0:4]", false),
                                                      ::testing::Pair("w[1][4:10]", true),
                                                      ::testing::Pair("w[0][0:4]", false)));
  EXPECT_THAT(Reasons(plan), ::testing::UnorderedElementsAre(::testing::Pair(
                                 "w (rest)", HasSubstr("no part of it is multiplied"))));
  EXPECT_EQ(plan.covered_parameters, (4 + 6 + 4) * 6);
}

TEST(StackedWeights, AreLeftOutOneByOne) {
  Fixture fixture({{"w", Random({3, 6, 6}, 3)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    at::Tensor x = b[0];
                    for (int64_t l = 0; l < 3; ++l)
                      x = at::relu(at::linear(x, w.at("w").select(0, l)));
                    return x.sum(-1);
                  });
  const CapturePlan plan = fixture.Plan({.exclude = {"w[1]"}});
  ASSERT_EQ(plan.layers.size(), 1u);
  EXPECT_EQ(plan.layers[0].name, "w[0]");
  std::map<std::string, std::string> reasons = Reasons(plan);
  EXPECT_THAT(reasons["w[1]"], HasSubstr("excluded"));
  EXPECT_EQ(reasons["w[2]"], "output head");
}

TEST(StackedWeights, AreOverriddenOneByOne) {
  Fixture fixture(
      {{"w", Random({2, 6, 6}, 3)}}, [](const TensorMap& w, const Batch& b) -> LossValues {
        return at::linear(at::linear(b[0], w.at("w").select(0, 0)), w.at("w").select(0, 1)).sum(-1);
      });
  const CapturePlan plan = fixture.Plan();
  Replica& replica = *fixture.replica;
  const at::Tensor before = replica.table().entries[0].tensor.clone();
  {
    auto lease = replica.Use({});
    ASSERT_TRUE(lease.ok());
    lease->Write({plan.layers[1].entry, at::ones({6, 6})});
    EXPECT_TRUE(at::equal(replica.table().entries[0].tensor.select(0, 0), before.select(0, 0)));
    EXPECT_TRUE(at::equal(replica.table().entries[0].tensor.select(0, 1), at::ones({6, 6})));
  }
  EXPECT_TRUE(at::equal(replica.table().entries[0].tensor, before));
  using Piece = Replica::Piece;
  EXPECT_THAT(replica.PiecesOf(0), ::testing::ElementsAre(Piece{"w[0]", 36}, Piece{"w[1]", 36}));
}

}  // namespace stacked_weights_test
}  // namespace ptqwatch::internal
