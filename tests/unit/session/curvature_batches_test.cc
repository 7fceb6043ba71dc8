#include "session/curvature_batches.h"

#include <gmock/gmock.h>

#include <cmath>

#include "ATen/ops/arange.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/ones_like.h"
#include "ATen/ops/zeros.h"
#include "session/curvature_setup.h"
#include "unit/curvature/tanh_net.h"

namespace ptqwatch::internal {
namespace curvature_batches_test {

using ::testing::HasSubstr;
using Net = testing::TanhNet;

// The first sequences of the net's batches.
std::vector<Batch> First(const Net& net, int64_t sequences) {
  const auto subject = net.MakeSubject();
  const TensorTable table = *MakeTensorTable(subject->LiveTensors());
  const auto replica = Replica::Create(subject.get(), table, {&net.batches[0]});
  EXPECT_TRUE(replica.ok()) << replica.status();
  return FirstSequences(**replica, net.batches, sequences);
}

void ReturnMeans(Net& net) {
  net.losses = [losses = net.losses](const TensorMap& p, const Batch& b) -> LossValues {
    return losses(p, b).values.mean();
  };
}

TEST(FirstSequences, CutsTheBatchThatGoesTooFar) {
  Net net;
  const auto cut = First(net, 64);
  ASSERT_EQ(cut.size(), 1u);
  EXPECT_EQ(cut[0][0].size(0), 64);
  EXPECT_EQ(cut[0][1].size(0), 64);
  const auto both = First(net, 150);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[1][0].size(0), 50);
  EXPECT_EQ(First(net, 1000).size(), 3u);
}

TEST(FirstSequences, LeavesOutBatchesThatAreMasked) {
  Net net;
  net.batches[0][0].fill_(0);
  net.losses = [losses = net.losses](const TensorMap& p, const Batch& b) -> LossValues {
    return {losses(p, b).values, (b[0].abs().sum(-1) != 0).to(at::kFloat)};
  };
  auto suite = net.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  const std::vector<Batch>& batches = (*suite)->session().curvature();
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_TRUE(at::equal(batches[0][0], net.batches[1][0]));
  EXPECT_EQ(Net::Run(**suite).curvature->batch_tokens, 200);
}

TEST(FirstSequences, CutsBatchesWhoseLossIsAMean) {
  Net net;
  ReturnMeans(net);
  const auto cut = First(net, 64);
  ASSERT_EQ(cut.size(), 1u);
  EXPECT_EQ(cut[0][0].size(0), 64);
}

TEST(FirstSequences, TakesWholeBatchesIfTheyCannotBeCut) {
  Net net;
  net.losses = [losses = net.losses](const TensorMap& p, const Batch& b) -> LossValues {
    TORCH_CHECK(b[0].size(0) == 100, "this model wants batches of 100");
    return losses(p, b).values.mean();
  };
  const auto whole = First(net, 64);
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0][0].size(0), 100);
}

TEST(FirstSequences, LeavesBatchesWholeWhoseSequencesDependOnEachOther) {
  Net net;
  net.losses = [losses = net.losses](const TensorMap& p, const Batch& b) -> LossValues {
    const at::Tensor each = losses(p, b).values;
    return each + each.sum();  // as a contrast with the others of the batch has it
  };
  const auto whole = First(net, 64);
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0][0].size(0), 100);
}

TEST(FirstSequences, CutsBatchesWithMaskedLosses) {
  Net net;
  net.losses = [losses = net.losses](const TensorMap& p, const Batch& b) -> LossValues {
    at::Tensor each = losses(p, b).values.clone();
    at::Tensor weights = at::ones_like(each);
    each[0] = NAN;
    weights[0] = 0;
    return {each, weights};
  };
  EXPECT_EQ(First(net, 64)[0][0].size(0), 64);
}

// Each mean has the same weight.
TEST(FirstSequences, CutsNoMeanBesideOthers) {
  Net net;
  ReturnMeans(net);
  const auto both = First(net, 110);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[1][0].size(0), 100);
}

// 64 losses of a classifier say too little; 64 sequences of a language model have enough.
TEST(DefaultCurvatureSequences, AreAsManyAsHaveAThousandLosses) {
  EXPECT_EQ(DefaultCurvatureSequences(1), 1000);
  EXPECT_EQ(DefaultCurvatureSequences(15), 67);
  EXPECT_EQ(DefaultCurvatureSequences(16), 64);
  EXPECT_EQ(DefaultCurvatureSequences(1024), 64);
}

TEST(LossesASequence, AreThoseThatTheClosureGives) {
  const Batch tokens = {at::zeros({4, 10}, at::kLong)};
  const Batch images = {at::zeros({4, 10})};
  EXPECT_EQ(LossesASequence(at::zeros({4, 9}), tokens), 9);
  EXPECT_EQ(LossesASequence(at::zeros({4}), images), 1);
  EXPECT_EQ(LossesASequence(at::zeros({4}), tokens), 1) << "a classifier of texts";
  EXPECT_EQ(LossesASequence(at::zeros({4, 1}), images), 1);
  EXPECT_EQ(LossesASequence(at::zeros({}), tokens), 10);
  EXPECT_EQ(LossesASequence(at::zeros({}), images), 1);
  EXPECT_EQ(LossesASequence(at::zeros({}), {at::zeros({0, 10}, at::kLong)}), 1);
}

TEST(DefaultCurvatureSequences, OfAClassifierAreMoreThanThoseOfALanguageModel) {
  Net net;
  net.batches = {{testing::Waves({1200, 16}, 2, 0), at::arange(1200, at::kLong) % 8}};
  auto examples = net.Measure();
  ASSERT_TRUE(examples.ok()) << examples.status();
  EXPECT_TRUE((*examples)->session().one_loss_each());
  EXPECT_EQ(CountSequences((*examples)->session().curvature()), 1000);
  const Report report = Net::Run(**examples);
  EXPECT_EQ(report.curvature->batch_tokens, 1000);
  EXPECT_EQ(report.probe_examples, 1200);
  EXPECT_THAT(testing::DescribeProbes(**examples), HasSubstr(", 1000 examples"));

  net.losses = [losses = net.losses](const TensorMap& p, const Batch& b) -> LossValues {
    return losses(p, b).values.unsqueeze(1).expand({-1, 20});
  };
  auto sequences = net.Measure();
  ASSERT_TRUE(sequences.ok()) << sequences.status();
  EXPECT_FALSE((*sequences)->session().one_loss_each());
  EXPECT_EQ(CountSequences((*sequences)->session().curvature()), 64);
  EXPECT_EQ(Net::Run(**sequences).probe_examples, 0);
  EXPECT_THAT(testing::DescribeProbes(**sequences), HasSubstr(", 64 sequences"));
}

TEST(MicroBatches, GiveTheSameHessianFromSmallerGraphs) {
  Net whole;
  Net pieces;
  pieces.engine.micro_batch = 24;
  auto one = whole.Measure();
  auto other = pieces.Measure();
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_TRUE(other.ok()) << other.status();
  ASSERT_EQ((*other)->session().curvature().size(), 15u);
  EXPECT_EQ((*other)->session().curvature()[4][0].size(0), 100 - 4 * 24);
  const CurvatureReport a = *Net::Run(**one).curvature;
  const CurvatureReport b = *Net::Run(**other).curvature;
  EXPECT_EQ(b.batch_tokens, a.batch_tokens);
  EXPECT_NEAR(*b.loss_nats, *a.loss_nats, 1e-6);
  EXPECT_NEAR(*b.top_eigenvalue, *a.top_eigenvalue, 1e-4 * *a.top_eigenvalue);
  // The estimate builds on the searches' vectors, which come from differences.
  EXPECT_NEAR(*b.trace, *a.trace, 1e-3 * std::abs(*a.trace));
}

TEST(PrepareCurvature, TriesAsManySequencesAsItTakesForATokenThatCounts) {
  Net net;
  net.losses = [losses = net.losses](const TensorMap& p, const Batch& b) -> LossValues {
    return {losses(p, b).values, b[0].ne(0).any(1).to(at::kFloat)};
  };
  net.batches[0][0].narrow(0, 0, 5).zero_();
  auto some = net.Measure();
  ASSERT_TRUE(some.ok()) << some.status();
  const CurvatureReport report = *Net::Run(**some).curvature;
  EXPECT_EQ(report.status, ProbeStatus::kOk) << report.status_detail;
  EXPECT_GT(report.top_eigenvalue.value_or(0), 0);

  for (Batch& batch : net.batches) batch[0].zero_();
  net.engine.mode = HessianMode::kRetainedGraph;
  EXPECT_THAT(std::string(net.Measure().status().message()), HasSubstr("masked out"));
}

TEST(OnBatches, CutsBatchesSoThatTheirGraphsFitTheBudget) {
  Net net;
  const auto subject = net.MakeSubject();
  const TensorTable table = *MakeTensorTable(subject->LiveTensors());
  auto replica = Replica::Create(subject.get(), table, {&net.batches[0]});
  ASSERT_TRUE(replica.ok()) << replica.status();
  const CurvatureTarget target{.scope = {0, 2, 3}, .batches = net.batches};
  ExecutionContext context;
  const CurvatureEngineOptions engine;
  const auto trial = PrepareCurvature(**replica, target, engine, context);
  ASSERT_TRUE(trial.ok()) << trial.status();
  ASSERT_EQ(CountSequences(trial->target.batches), 1);
  const int64_t each = trial->graph_bytes.value();
  const auto within = [&](int64_t bytes, const std::vector<Batch>& batches) {
    context.bytes = std::make_shared<ByteBudget>(bytes);
    auto setup = OnBatches(**replica, *trial, batches, engine, context);
    EXPECT_TRUE(setup.ok()) << setup.status();
    return *std::move(setup);
  };
  // Half of the budget is for graphs: those that are kept, and that of a product on one batch.
  CurvatureSetup setup = within(2 * 400 * each, net.batches);
  EXPECT_EQ(setup.mode, HessianMode::kRetainedGraph);
  EXPECT_EQ(setup.target.batches.size(), 3u);
  EXPECT_EQ(setup.GraphBytesHeld(), 400 * each);
  // A product by a graph that is not kept takes two of a batch.
  setup = within(2 * 399 * each, net.batches);
  EXPECT_EQ(setup.mode, HessianMode::kRecomputedGraph);
  EXPECT_EQ(setup.target.batches.size(), 3u);
  EXPECT_EQ(setup.GraphBytesHeld(), 200 * each);
  setup = within(2 * 2 * 40 * each, net.batches);
  EXPECT_EQ(setup.mode, HessianMode::kRecomputedGraph);
  EXPECT_EQ(setup.target.batches[0][0].size(0), 40);
  EXPECT_EQ(setup.target.batches.size(), 9u);
  EXPECT_EQ(setup.GraphBytesHeld(), 80 * each);
  EXPECT_EQ(setup.totals.tokens, 300);
  setup = within(2 * each, net.batches);
  EXPECT_EQ(setup.mode, HessianMode::kFiniteDifference);
  EXPECT_EQ(setup.GraphBytesHeld(), 0);
  // Earlier reservations count.
  context.bytes = std::make_shared<ByteBudget>(2 * 400 * each);
  ASSERT_TRUE(context.bytes->Reserve(1000, "something").ok());
  EXPECT_EQ(OnBatches(**replica, *trial, net.batches, engine, context)->mode,
            HessianMode::kRecomputedGraph);
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
  EXPECT_THAT(refused([](const at::Tensor& values) { return values.max(); }),
              HasSubstr("curvature.micro_batch = 24: batch 0 of 100 sequences cannot be cut: its "
                        "loss is a mean over the batch"));
  EXPECT_THAT(refused([](const at::Tensor& values) { return values * values.numel(); }),
              HasSubstr("depend on the other sequences of its batch"));
}

}  // namespace curvature_batches_test
}  // namespace ptqwatch::internal
