#include "session/curvature_batches.h"

#include <gmock/gmock.h>

#include <cmath>

#include "ATen/ops/cat.h"
#include "unit/curvature/tanh_net.h"

namespace ptqwatch::internal {
namespace {

using ::testing::HasSubstr;
using Net = testing::TanhNet;

TEST(FirstSequences, CutsTheBatchThatGoesTooFar) {
  Net net;
  const auto subject = net.MakeSubject();
  const TensorTable table = *MakeTensorTable(subject->LiveTensors());
  auto replica = Replica::Create(subject.get(), table, {&net.batches[0]});
  ASSERT_TRUE(replica.ok()) << replica.status();
  const auto cut = FirstSequences(**replica, net.batches, 64);
  ASSERT_EQ(cut.size(), 1u);
  EXPECT_EQ(cut[0][0].size(0), 64);
  EXPECT_EQ(cut[0][1].size(0), 64);
  const auto both = FirstSequences(**replica, net.batches, 150);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[1][0].size(0), 50);
  EXPECT_EQ(FirstSequences(**replica, net.batches, 1000).size(), 3u);
}

TEST(FirstSequences, CutsBatchesWhoseLossIsAMean) {
  Net net;
  net.losses = [losses = net.losses](const TensorMap& p, const Batch& b) -> LossValues {
    return losses(p, b).values.mean();
  };
  auto measurement = net.Measure();
  ASSERT_TRUE(measurement.ok()) << measurement.status();
  const Report report = Net::Run(**measurement);
  EXPECT_EQ(report.curvature->status, ProbeStatus::kOk) << report.curvature->status_detail;
  EXPECT_EQ(report.curvature->batch_tokens, 64);
}

TEST(FirstSequences, TakesWholeBatchesWhereTheyCannotBeCut) {
  Net net;
  net.losses = [losses = net.losses](const TensorMap& p, const Batch& b) -> LossValues {
    TORCH_CHECK(b[0].size(0) == 100, "this model wants batches of 100");
    return losses(p, b).values.mean();
  };
  auto measurement = net.Measure();
  ASSERT_TRUE(measurement.ok()) << measurement.status();
  const Report report = Net::Run(**measurement);
  EXPECT_EQ(report.curvature->status, ProbeStatus::kOk) << report.curvature->status_detail;
  EXPECT_EQ(report.curvature->batch_tokens, 100);
}

TEST(MicroBatches, GiveTheSameHessianFromSmallerGraphs) {
  Net whole;
  Net pieces;
  pieces.engine.micro_batch = 24;
  auto one = whole.Measure();
  auto other = pieces.Measure();
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_TRUE(other.ok()) << other.status();
  ASSERT_EQ((*other)->session().curvature().size(), 3u);
  EXPECT_EQ((*other)->session().curvature()[2][0].size(0), 64 - 2 * 24);
  const CurvatureReport a = *Net::Run(**one).curvature;
  const CurvatureReport b = *Net::Run(**other).curvature;
  EXPECT_EQ(b.batch_tokens, a.batch_tokens);
  EXPECT_NEAR(*b.loss_nats, *a.loss_nats, 1e-6);
  EXPECT_NEAR(*b.top_eigenvalue, *a.top_eigenvalue, 1e-4 * *a.top_eigenvalue);
  EXPECT_NEAR(*b.trace, *a.trace, 1e-4 * std::abs(*a.trace));
}

TEST(MicroBatches, SayWhyABatchCannotBeCut) {
  const auto refused = [](auto losses) {
    Net net;
    net.engine.micro_batch = 24;
    net.losses = [losses, all = net.losses](const TensorMap& p, const Batch& b) -> LossValues {
      return losses(all(p, b).values);
    };
    return std::string(net.Measure().status().message());
  };
  EXPECT_THAT(refused([](const at::Tensor& values) { return values.sum(); }),
              HasSubstr("curvature.micro_batch = 24: batch 0 of 100 sequences cannot be cut: its "
                        "loss is a mean over the batch"));
  EXPECT_THAT(refused([](const at::Tensor& values) { return values * values.numel(); }),
              HasSubstr("depend on the other sequences of its batch"));
}

}  // namespace
}  // namespace ptqwatch::internal
