#include "capture/expert_routing.h"

#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "ATen/ops/cat.h"
#include "ATen/ops/index_add.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/relu.h"
#include "ATen/ops/softmax.h"
#include "ATen/ops/topk.h"
#include "ATen/ops/zeros_like.h"
#include "capture_fixture.h"

namespace ptqwatch::internal {
namespace expert_routing_test {

constexpr int64_t kExperts = 5;
constexpr int64_t kTopK = 2;
constexpr int64_t kWidth = 8;

at::Tensor Scores(const at::Tensor& x, const at::Tensor& router) {
  return at::softmax(at::linear(x, router), -1);
}

// A stack of experts behind a router, as a loop over the experts. A top-k of the tokens and one
// that takes all scores choose nothing.
LossValues Mixture(const TensorMap& w, const Batch& b) {
  const at::Tensor x = at::relu(at::linear(b[0].view({-1, kWidth}), w.at("in")));
  at::topk(x, 1, 0);
  const at::Tensor scores = Scores(x, w.at("router"));
  at::topk(scores, kExperts);
  const auto [shares, chosen] = at::topk(scores, kTopK);
  at::Tensor y = at::zeros_like(x);
  for (int64_t e = 0; e < kExperts; ++e) {
    const at::Tensor rows = (chosen == e).any(-1).nonzero().flatten();
    if (rows.numel() == 0) continue;
    const at::Tensor out = at::linear(x.index_select(0, rows), w.at("experts").select(0, e));
    y = at::index_add(y, 0, rows, out);
  }
  return at::linear(y, w.at("out")).sum(-1).view(b[0].sizes().slice(0, 2));
}

std::vector<NamedTensor> Parameters() {
  return {{"in", Random({kWidth, kWidth}, 3)},
          {"router", Random({kExperts, kWidth}, 4)},
          {"experts", Random({kExperts, kWidth, kWidth}, 5)},
          {"out", Random({2, kWidth}, 6)}};
}

Fixture MakeMixture(std::vector<int64_t> sizes = {4, 16, kWidth}) {
  return Fixture({{Random(sizes, 1)}, {Random(sizes, 2)}}, Parameters(), Mixture);
}

ExpertRouting RoutingOf(Fixture& fixture, size_t batch,
                        const std::vector<Replica::Override>& weights = {}) {
  const auto lease = fixture.replica->Use(weights);
  EXPECT_TRUE(lease.ok()) << lease.status();
  RoutingWatcher watcher(fixture.replica->table());
  EXPECT_TRUE(fixture.replica->Losses(fixture.batches[batch]).ok());
  return watcher.Take();
}

// The sets that the router with these weights chooses, computed here.
at::Tensor Chosen(const Fixture& fixture, size_t batch, const at::Tensor& router) {
  const std::vector<NamedTensor> parameters = Parameters();
  const at::Tensor x =
      at::relu(at::linear(fixture.batches[batch][0].view({-1, kWidth}), parameters[0].tensor));
  const at::Tensor experts = std::get<1>(at::topk(Scores(x, router), kTopK));
  return std::get<0>(experts.sort(-1)).to(at::kInt);
}

TEST(RoutingWatcher, SeesTheChoicesOfRoutersAndTheRowsOfExperts) {
  Fixture fixture = MakeMixture();
  EXPECT_TRUE(fixture.Plan().routed);
  const ExpertRouting routing = RoutingOf(fixture, 0);
  ASSERT_EQ(routing.choices.size(), 1u);
  const at::Tensor expected = Chosen(fixture, 0, Parameters()[1].tensor);
  EXPECT_TRUE(routing.choices[0].equal(expected));
  const int experts = 2;  // in the table
  for (int64_t e = 0; e < kExperts; ++e) {
    const auto found = routing.rows.find({experts, true, e * kWidth * kWidth});
    const int64_t rows = found == routing.rows.end() ? 0 : found->second;
    EXPECT_EQ(rows, (expected == e).sum().item<int64_t>()) << e;
  }
}

TEST(RoutingWatcher, ADenseModelHasNone) {
  Fixture fixture({{"a", Random({6, 6}, 3)}, {"b", Random({6, 6}, 4)}},
                  [](const TensorMap& w, const Batch& b) -> LossValues {
                    return at::linear(at::linear(b[0], w.at("a")), w.at("b")).sum(-1);
                  });
  EXPECT_FALSE(fixture.Plan().routed);
  EXPECT_TRUE(RoutingOf(fixture, 0).choices.empty());
}

TEST(RoutingChange, IsTheShareOfTokensThatGoElsewhere) {
  Fixture fixture = MakeMixture();
  const int router = 1;  // in the table
  const at::Tensor before = Parameters()[1].tensor;
  const at::Tensor after = before + 0.3 * Random({kExperts, kWidth}, 9);
  RoutingChange change;
  RoutingChange none;
  int64_t changed = 0;
  int64_t tokens = 0;
  for (size_t batch = 0; batch < 2; ++batch) {
    const ExpertRouting own = RoutingOf(fixture, batch);
    change.Add(own, RoutingOf(fixture, batch, {{router, after}}));
    none.Add(own, RoutingOf(fixture, batch));
    const at::Tensor differ =
        Chosen(fixture, batch, before).ne(Chosen(fixture, batch, after)).any(-1);
    changed += differ.sum().item<int64_t>();
    tokens += differ.numel();
  }
  ASSERT_GT(changed, 0);
  EXPECT_EQ(change.ratio(), static_cast<double>(changed) / static_cast<double>(tokens));
  EXPECT_EQ(none.ratio(), 0);
}

TEST(RoutingChange, OfPassesThatCannotBeComparedIsAbsent) {
  Fixture fixture = MakeMixture();
  const ExpertRouting own = RoutingOf(fixture, 0);
  RoutingChange nothing;
  EXPECT_EQ(nothing.ratio(), std::nullopt);
  RoutingChange fewer;
  fewer.Add(own, {});
  fewer.Add(own, own);
  EXPECT_EQ(fewer.ratio(), std::nullopt);
  ExpertRouting shorter = own;
  shorter.choices[0] = shorter.choices[0].narrow(0, 0, 3);
  RoutingChange other;
  other.Add(own, shorter);
  EXPECT_EQ(other.ratio(), std::nullopt);
}

TEST(FallbackShare, CountsTheRowsOfExperts) {
  Fixture fixture = MakeMixture();
  CapturePlan plan = fixture.Plan();
  const std::vector<ExpertRouting> passes = {RoutingOf(fixture, 0), RoutingOf(fixture, 1)};
  const at::Tensor chosen = at::cat(
      {Chosen(fixture, 0, Parameters()[1].tensor), Chosen(fixture, 1, Parameters()[1].tensor)});
  const auto share = [&](int64_t expert) {
    return (chosen == expert).to(at::kDouble).mean().item<double>();
  };
  const auto of = [&](const std::string& name) {
    return [&, name](size_t layer) { return plan.layers[layer].name == name; };
  };
  const auto& table = fixture.replica->table();
  EXPECT_EQ(FallbackShare(table, plan, passes, of("none")), 0);
  EXPECT_DOUBLE_EQ(*FallbackShare(table, plan, passes, of("experts[2]")), share(2));
  EXPECT_EQ(FallbackShare(table, plan, passes, of("in")), 0) << "which is no expert";
  std::erase_if(plan.layers, [](const CoveredLayer& layer) { return layer.name == "experts[3]"; });
  EXPECT_DOUBLE_EQ(*FallbackShare(table, plan, passes, of("none")), share(3))
      << "calibration has not met it";
  plan.layers.clear();
  EXPECT_EQ(FallbackShare(table, plan, passes, of("none")), std::nullopt);
}

}  // namespace expert_routing_test
}  // namespace ptqwatch::internal
