#include "snapshot/replica.h"

#include <gmock/gmock.h>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/isfinite.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "ptqwatch/function_subject.h"

namespace ptqwatch::internal {
namespace replica_test {

struct ReplicaTest : ::testing::Test {
  ReplicaTest() {
    batch = {at::ones({2, 3})};
    weight = at::arange(6, at::kFloat).view({3, 2}) / 7;
    live = {{"w", weight, true}, {"tied", weight, true}, {"count", at::ones({1}), false}};
    subject = MakeFunctionSubject(
        {.live = live,
         .losses = [](const TensorMap& tensors, const Batch& b) -> LossValues {
           return at::mm(b[0], tensors.at("w")) + tensors.at("tied").sum() * tensors.at("count");
         },
         .probe = {batch}});
    auto created = Replica::Create(subject.get(), *MakeTensorTable(live), {&batch});
    EXPECT_TRUE(created.ok()) << created.status();
    replica = *std::move(created);
  }
  at::Tensor Values() { return replica->Losses(batch)->values.clone(); }

  Batch batch;
  at::Tensor weight;
  std::vector<NamedTensor> live;
  std::unique_ptr<Subject> subject;
  std::unique_ptr<Replica> replica;
};

TEST_F(ReplicaTest, LeaseChangesEveryAliasAndRestoresTheLastBit) {
  const at::Tensor before = Values();
  const uint64_t generation = replica->generation();
  {
    auto lease = replica->Use({{0, at::full({3, 2}, 0.1f)}});
    const at::Tensor expected =
        at::mm(batch[0], at::full({3, 2}, 0.1f)) + at::full({3, 2}, 0.1f).sum();
    EXPECT_TRUE(at::equal(Values(), expected));
    EXPECT_GT(replica->generation(), generation);
  }
  EXPECT_TRUE(at::equal(Values(), before));
  EXPECT_GT(replica->generation(), generation + 1);
}

TEST_F(ReplicaTest, LoadTakesParametersAndBuffers) {
  replica->Load({at::ones({3, 2}), at::full({1}, 2)});
  EXPECT_TRUE(at::equal(Values(), at::full({2, 2}, 3.0f + 12.0f)));
  EXPECT_TRUE(at::equal(replica->loaded(0), at::ones({3, 2})));
}

TEST_F(ReplicaTest, AStandInIsTakenForTheSnapshotAndLeavesItsBits) {
  const at::Tensor before = Values();
  const at::Tensor loaded = replica->loaded(0).clone();
  const uint64_t generation = replica->generation();
  {
    const auto stand_in = replica->Replace({{0, at::full({3, 2}, 0.1f)}});
    ASSERT_TRUE(stand_in.ok()) << stand_in.status();
    EXPECT_TRUE(at::equal(replica->loaded(0), at::full({3, 2}, 0.1f)));
    const at::Tensor expected =
        at::mm(batch[0], at::full({3, 2}, 0.1f)) + at::full({3, 2}, 0.1f).sum();
    EXPECT_TRUE(at::equal(Values(), expected));
    EXPECT_GT(replica->generation(), generation);
    // A lease comes back to the stand-in.
    { const auto lease = replica->Use({{0, at::ones({3, 2})}}); }
    EXPECT_TRUE(at::equal(Values(), expected));
    EXPECT_EQ(replica->Replace({}).status().code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_TRUE(at::equal(Values(), before));
  EXPECT_TRUE(at::equal(replica->loaded(0), loaded));
  replica->Load({at::ones({3, 2}), at::full({1}, 2)});
  EXPECT_TRUE(at::equal(Values(), at::full({2, 2}, 3.0f + 12.0f)));
}

TEST_F(ReplicaTest, AStandInThatDoesNotFitChangesNothing) {
  const at::Tensor before = Values();
  EXPECT_ANY_THROW((void)replica->Replace({{0, at::ones({5})}}));
  EXPECT_TRUE(at::equal(Values(), before));
  EXPECT_TRUE(replica->Use({}).ok());
}

TEST_F(ReplicaTest, RefusesAStandInWhileALeaseIsAlive) {
  const auto lease = replica->Use({});
  EXPECT_EQ(replica->Replace({}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ReplicaTest, RefusesAClosureThatKeepsAViewOfAWeight) {
  auto view = std::make_shared<at::Tensor>();
  subject = MakeFunctionSubject(
      {.live = live,
       .losses = [view](const TensorMap& tensors, const Batch& b) -> LossValues {
         if (!view->defined()) *view = tensors.at("w").alias();
         return at::mm(b[0], *view) + tensors.at("tied").sum();
       },
       .probe = {batch}});
  const auto created = Replica::Create(subject.get(), *MakeTensorTable(live), {&batch});
  EXPECT_THAT(std::string(created.status().message()), ::testing::HasSubstr("other memory"));
}

TEST_F(ReplicaTest, RefusesAClosureThatUsesTheLiveModel) {
  subject = MakeFunctionSubject(
      {.live = live,
       .losses = [live = weight](const TensorMap&, const Batch& b) -> LossValues {
         return at::mm(b[0], live);
       },
       .probe = {batch}});
  const auto created = Replica::Create(subject.get(), *MakeTensorTable(live), {&batch});
  EXPECT_THAT(std::string(created.status().message()), ::testing::HasSubstr("does not change"));
}

// Rows of zeros are masked out: their losses are 0 or, with weights, anything.
struct MaskedReplicaTest : ReplicaTest {
  std::string Mistake(std::vector<const Batch*> check, absl::Span<const Batch> more = {},
                      bool live_model = false, bool weights = false) {
    subject = MakeFunctionSubject(
        {.live = live,
         .losses = [live_model, weights, w = weight](const TensorMap& tensors,
                                                     const Batch& b) -> LossValues {
           const at::Tensor mask = (b[0].sum(-1) != 0).to(at::kFloat);
           const at::Tensor values = at::mm(b[0], live_model ? w : tensors.at("w")).sum(-1);
           return weights ? LossValues(values / mask, mask) : LossValues(values * mask);
         },
         .probe = {batch}});
    const auto created = Replica::Create(subject.get(), *MakeTensorTable(live), std::move(check),
                                         std::nullopt, more);
    return std::string(created.status().message());
  }
  const Batch masked = {at::zeros({2, 3})};
  const Batch empty = {at::zeros({0, 3})};
};

TEST_F(MaskedReplicaTest, TakesBatchesWithoutLossesBesideOthers) {
  const std::vector<Batch> all = {masked, masked, batch};
  for (const bool weights : {false, true}) {
    EXPECT_EQ(Mistake({&batch, &masked}, {}, false, weights), "");
    EXPECT_EQ(Mistake({&all[0], &masked}, all, false, weights), "");
    EXPECT_THAT(Mistake({&all[0]}, all, /*live_model=*/true, weights),
                ::testing::HasSubstr("does not change with the replica's parameters"));
  }
}

TEST_F(MaskedReplicaTest, SaysIfNoBatchHasLosses) {
  const std::vector<Batch> all = {masked, masked};
  EXPECT_EQ(Mistake({&all[0]}, all),
            "all losses of the 2 batches are masked out or 0, or there are none: nothing can be "
            "measured");
  EXPECT_THAT(Mistake({&empty}),
              ::testing::HasSubstr("of the batch are masked out or 0, or there are none"));
}

TEST_F(ReplicaTest, RefusesLossWeightsThatChangeWithTheParameters) {
  subject =
      MakeFunctionSubject({.live = live,
                           .losses = [](const TensorMap& tensors, const Batch& b) -> LossValues {
                             const at::Tensor values = at::mm(b[0], tensors.at("w"));
                             return {values, values.detach().abs()};
                           },
                           .probe = {batch}});
  const auto created = Replica::Create(subject.get(), *MakeTensorTable(live), {&batch});
  EXPECT_THAT(std::string(created.status().message()),
              ::testing::HasSubstr("LossValues::weights changes with the replica's parameters"));
}

TEST(Perturbed, IsFiniteForALargeWeightInFloat16) {
  const at::Tensor perturbed = Perturbed(at::ones({1 << 17}, at::kHalf));
  EXPECT_EQ(perturbed.scalar_type(), at::kHalf);
  EXPECT_TRUE(at::isfinite(perturbed).all().item<bool>());
  EXPECT_FALSE(at::equal(perturbed[0], perturbed[1]));
}

TEST_F(ReplicaTest, IsIndependentOfTheLiveModel) {
  const at::Tensor before = Values();
  weight.fill_(100);
  EXPECT_TRUE(at::equal(Values(), before));
}

TEST_F(ReplicaTest, LosesNothingOfABufferThatTheClosureWrites) {
  const auto losses = [](const TensorMap& tensors, const Batch& b) -> LossValues {
    at::Tensor count = tensors.at("count");
    const at::Tensor values = at::mm(b[0], tensors.at("w")) * count;
    if (count.item<float>() < 1.5f) count.copy_(count);  // a write that keeps the value
    return values;
  };
  subject = MakeFunctionSubject({.live = live, .losses = losses, .probe = {batch}});
  auto created = Replica::Create(subject.get(), *MakeTensorTable(live), {&batch});
  ASSERT_TRUE(created.ok()) << created.status();
  replica = *std::move(created);
  {
    auto lease = replica->Use({});
    replica->table().entries[1].tensor.fill_(5);
  }
  EXPECT_TRUE(at::equal(replica->table().entries[1].tensor, at::ones({1})));
}

}  // namespace replica_test
}  // namespace ptqwatch::internal
