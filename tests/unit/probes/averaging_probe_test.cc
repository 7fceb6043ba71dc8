#include "probes/averaging_probe.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/equal.h"
#include "unit/probes/averaging_fixture.h"

namespace ptqwatch::internal {
namespace averaging_probe_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(AveragingTest, GivesTheBitsOfTheAveragedModelMeasuredAlone) {
  Open();
  EXPECT_TRUE(Snapshot(10).averaging.empty());
  Snapshot(20);
  const Report report = Snapshot(30);
  ASSERT_EQ(report.averaging.size(), 1u);
  const AveragingReport& average = report.averaging[0];
  EXPECT_EQ(average.kind, AveragingKind::kWindow);
  EXPECT_EQ(average.window, 3);
  EXPECT_FALSE(average.decay);
  ExpectSame(average, Alone(MeanOfAll({WeightsAt(10), WeightsAt(20), WeightsAt(30)})));
  EXPECT_NE(average.loss_nats, report.probe_loss_nats);
  EXPECT_EQ(average.quantization[0].method, QuantizationMethod::kGptq);
  EXPECT_EQ(average.quantization[1].method, QuantizationMethod::kRtn);
  EXPECT_GT(report.cost.at("averaging"), 0);
}

TEST_F(AveragingTest, SaysHowTheLossDiffersFromTheSnapshots) {
  Open();
  Snapshot(10);
  Snapshot(20);
  const Report report = Snapshot(30);
  const AveragingReport& average = report.averaging.at(0);
  EXPECT_NEAR(*average.change_nats, *average.loss_nats - *report.probe_loss_nats, 1e-12);
  for (size_t i = 0; i < 2; ++i) {
    const QuantizationReport& entry = average.quantization.at(i);
    EXPECT_NEAR(*entry.change_nats, *entry.loss_nats - *report.quantization[1 - i].loss_nats,
                1e-12);
  }
  // The standard error of the mean of the examples' differences.
  const auto losses = [&](const Weights& weights) {
    TensorMap parameters;
    for (size_t i = 0; i < weights.size(); ++i) parameters.emplace(net_.live[i].name, weights[i]);
    std::vector<double> all;
    for (const Batch& batch : net_.batches) {
      const at::Tensor one = net_.losses(parameters, batch).values.to(at::kDouble);
      all.insert(all.end(), one.const_data_ptr<double>(),
                 one.const_data_ptr<double>() + one.numel());
    }
    return all;
  };
  const std::vector<double> now = losses(WeightsAt(30));
  const std::vector<double> then = losses(MeanOfAll({WeightsAt(10), WeightsAt(20), WeightsAt(30)}));
  const double n = static_cast<double>(now.size());
  double squares = 0;
  for (size_t i = 0; i < now.size(); ++i) {
    squares += std::pow(then[i] - now[i] - *average.change_nats, 2);
  }
  EXPECT_NEAR(*average.change_stderr_nats, std::sqrt(squares / n / (n - 1)), 1e-7);
}

TEST(AveragedQuantizers, AreTheWatchedAndTheCheapestOfTheOtherWidth) {
  const auto chosen = [](const std::vector<std::string>& names, std::vector<double> seconds) {
    std::vector<QuantizerSpec> specs;
    for (const std::string& name : names) specs.push_back(*ParseQuantizer(name));
    return AveragedQuantizers(specs, seconds);
  };
  EXPECT_THAT(chosen({"rtn3", "rtn4", "gptq3", "gptq4"}, {1, 1, 9, 9}), ElementsAre(2, 1));
  EXPECT_THAT(chosen({"rtn3", "gptq4", "gptq3"}, {1, 9, 9}), ElementsAre(2, 1));
  EXPECT_THAT(chosen({"rtn3", "nf4", "rtn4"}, {1, 1, 1}), ElementsAre(0, 1));
  EXPECT_THAT(chosen({"rtn3", "gptq4", "awq3"}, {2, 9, 3}), ElementsAre(1, 0));
  EXPECT_THAT(chosen({"rtn3", "rtn4", "gptq8"}, {1, 1, 9}), ElementsAre(2, 0, 1));
  EXPECT_THAT(chosen({"rtn8", "gptq4", "rtn4"}, {1, 9, 1}), ElementsAre(1));
  EXPECT_THAT(chosen({"rtn2"}, {1}), ElementsAre(0));
}

TEST_F(AveragingTest, CountsTheSnapshotsInIt) {
  Open();
  const std::vector<std::pair<int64_t, int64_t>> expected = {{2, 10}, {3, 10}, {3, 20}, {3, 30}};
  Snapshot(10);
  for (int64_t i = 0; i < 4; ++i) {
    const Report report = Snapshot(10 * (i + 2));
    ASSERT_EQ(report.averaging.size(), 1u);
    EXPECT_EQ(report.averaging[0].snapshots, expected[static_cast<size_t>(i)].first);
    EXPECT_EQ(report.averaging[0].first_step, expected[static_cast<size_t>(i)].second);
  }
  ExpectSame(Snapshot(60).averaging.at(0),
             Alone(MeanOfAll({WeightsAt(40), WeightsAt(50), WeightsAt(60)})));
}

TEST_F(AveragingTest, ForgetsWhatARollbackUndid) {
  net_.options.averaging.decay = 0.5;
  Open();
  for (int64_t step : {10, 20, 30}) Snapshot(step);
  EXPECT_EQ(Snapshot(20).averaging.at(0).snapshots, 2);
  const Report report = Snapshot(25);
  EXPECT_EQ(report.averaging.at(0).snapshots, 3);
  EXPECT_EQ(report.averaging.at(0).first_step, 10);
  ExpectSame(report.averaging.at(0),
             Alone(MeanOfAll({WeightsAt(10), WeightsAt(20), WeightsAt(25)})));
  // A snapshot cannot be taken out of an exponential average.
  EXPECT_EQ(report.averaging.at(1).snapshots, 2);
  EXPECT_EQ(report.averaging.at(1).first_step, 20);
}

// As Finish does, if the schedule measured the last step with little data.
TEST_F(AveragingTest, KeepsTheLastSnapshotWhenItsStepIsMeasuredAgain) {
  net_.options.averaging = {.window = 3, .decay = 0.5};
  Open();
  for (int64_t step : {10, 20}) Snapshot(step);
  const Report first = Snapshot(30);
  ReportHeader again;
  again.snapshot.trigger = SnapshotTrigger::kFinish;
  again.snapshot.additional = true;
  const Report last = Snapshot(30, again);
  EXPECT_EQ(last.averaging, first.averaging);
  ASSERT_EQ(last.averaging.size(), 4u);  // with two merges
  EXPECT_EQ(last.averaging[0].snapshots, 3);
  EXPECT_EQ(last.averaging[1].kind, AveragingKind::kExponential);
}

TEST_F(AveragingTest, AlsoAveragesExponentially) {
  net_.options.averaging.decay = 0.75;
  Open();
  Snapshot(1);
  Snapshot(2);
  const Report report = Snapshot(3);
  ASSERT_EQ(report.averaging.size(), 2u);
  const AveragingReport& average = report.averaging[1];
  EXPECT_EQ(average.kind, AveragingKind::kExponential);
  EXPECT_EQ(average.decay, 0.75);
  EXPECT_EQ(average.snapshots, 3);
  EXPECT_EQ(average.first_step, 1);
  Weights expected = WeightsAt(3);
  for (size_t i = 0; i < expected.size(); ++i) {
    for (int64_t k = 0; k < expected[i].numel(); ++k) {
      double mean = WeightsAt(1)[i].const_data_ptr<float>()[k];
      for (int64_t step : {2, 3}) {
        // 0.75 and 0.25 are exact, a float64 product of a float32 is not always: volatile keeps a
        // compiler from making one operation of two.
        const volatile double kept = 0.75 * mean;
        const volatile double share = 0.25 * WeightsAt(step)[i].const_data_ptr<float>()[k];
        mean = kept + share;
      }
      expected[i].mutable_data_ptr<float>()[k] = static_cast<float>(mean);
    }
  }
  ExpectSame(average, Alone(expected));
}

TEST_F(AveragingTest, LeavesTheWeightsOfTheSnapshotToTheBit) {
  Open();
  Snapshot(1);
  const Report report = Snapshot(2);
  ASSERT_EQ(report.averaging.size(), 1u);
  Replica& replica = suite_->session().replica();
  const Weights expected = WeightsAt(2);
  for (size_t i = 0; i < expected.size(); ++i) {
    const int entry = static_cast<int>(i);
    EXPECT_TRUE(at::equal(replica.loaded(entry), expected[i]));
    EXPECT_TRUE(at::equal(replica.table().entries[i].tensor, expected[i]));
  }
  EXPECT_TRUE(replica.Use({}).ok());
  // The same snapshot again gives the same numbers.
  EXPECT_EQ(MeasureLoaded(3).quantization, report.quantization);
}

TEST_F(AveragingTest, LeavesOutWeightsThatAreNotFinite) {
  Open();
  Snapshot(1);
  Weights broken = WeightsAt(2);
  broken[2][3][4] = std::nan("");
  Train(broken);
  const Report report = MeasureLoaded(2);
  EXPECT_EQ(report.probe_status, ProbeStatus::kNonFinite);
  EXPECT_TRUE(report.averaging.empty());
  const Report next = Snapshot(3);
  ASSERT_EQ(next.averaging.size(), 1u);
  EXPECT_EQ(next.averaging[0].snapshots, 2);
  EXPECT_EQ(next.averaging[0].first_step, 1);
  ExpectSame(next.averaging[0], Alone(MeanOfAll({WeightsAt(1), WeightsAt(3)})));
}

TEST_F(AveragingTest, TakesEverySoManyOfTheRegularSnapshots) {
  net_.options.averaging.spacing = 2;
  Open();
  ReportHeader requested;
  requested.snapshot.trigger = SnapshotTrigger::kRequest;
  ReportHeader additional;
  additional.snapshot.additional = true;
  ReportHeader finish;
  finish.snapshot.trigger = SnapshotTrigger::kFinish;
  Snapshot(1);
  Snapshot(2, requested);
  Snapshot(3);
  Snapshot(4, additional);
  const Report report = Snapshot(5, finish);
  ASSERT_EQ(report.averaging.size(), 1u);
  EXPECT_EQ(report.averaging[0].snapshots, 2);
  ExpectSame(report.averaging[0], Alone(MeanOfAll({WeightsAt(1), WeightsAt(5)})));
}

TEST_F(AveragingTest, MeasuresWithCurvatureAndCollectsWithout) {
  net_.options.curvature.enabled = true;
  Open();
  ReportHeader without;
  without.plan = Plan{.probe_batches = 3, .calibration_batches = 3, .curvature_every = 2};
  Snapshot(1, without);
  EXPECT_TRUE(Snapshot(2, without).averaging.empty());
  ReportHeader with = without;
  with.plan->curvature_sequences = 8;
  EXPECT_EQ(Snapshot(3, with).averaging.at(0).snapshots, 3);
  // Averages do not wait for curvature that never comes.
  suite_->Disable("curvature", "off");
  EXPECT_EQ(Snapshot(4, without).averaging.size(), 1u);
}

TEST_F(AveragingTest, HoldsFewerSnapshotsIfMemoryIsShort) {
  net_.options.averaging.window = 4;
  const auto all = std::make_shared<ByteBudget>();
  EXPECT_EQ(LastOfFive(all).snapshots, 4);
  constexpr int64_t kSnapshot = 4 * (24 * 16 + 24 + 24 * 24 + 8 * 24);
  bool few = false;
  bool none = false;
  int64_t before = 4;
  for (int64_t halves = 48; halves >= -4 && !none; --halves) {
    SCOPED_TRACE(halves);
    const int64_t limit = all->peak() + halves * kSnapshot / 2;
    const auto bytes = std::make_shared<ByteBudget>(limit);
    const AveragingReport last = LastOfFive(bytes);
    EXPECT_LE(bytes->peak(), limit);
    EXPECT_LE(last.snapshots, before);
    before = last.snapshots;
    if (last.snapshots == 4) {
      EXPECT_EQ(last.status_detail, "");
      continue;
    }
    EXPECT_THAT(last.status_detail,
                HasSubstr("max_bytes leaves room for " + std::to_string(last.snapshots) + " of 4"));
    if (last.snapshots < 2) {
      none = true;
      EXPECT_EQ(last.status, ProbeStatus::kDisabled);
      continue;
    }
    few = true;
    std::vector<Weights> kept;
    for (int64_t step = last.first_step; step <= 5; ++step) kept.push_back(WeightsAt(step));
    ExpectSame(last, Alone(MeanOfAll(kept)));
  }
  EXPECT_TRUE(few);
  EXPECT_TRUE(none);
}

TEST_F(AveragingTest, GivesItsMemoryBackWhenItIsSwitchedOff) {
  Open();
  ExecutionContext context;
  net_.Load(*suite_);
  ASSERT_TRUE(suite_->Measure({.step = 1}, {}, {}, context).ok());
  EXPECT_GT(context.bytes->used(), 0);
  suite_->Disable("averaging", "asked for");
  EXPECT_EQ(context.bytes->used(), 0);
  const Report report = Snapshot(2);
  ASSERT_EQ(report.averaging.size(), 1u);
  EXPECT_EQ(report.averaging[0].status, ProbeStatus::kDisabled);
  EXPECT_THAT(testing::DescribeProbes(*suite_), HasSubstr("averages: off, asked for"));
}

TEST_F(AveragingTest, SaysWhatItHolds) {
  net_.options.noise_relative_norm = 0;  // so that averages are last
  net_.options.averaging.decay = 0.9;
  Open();
  const ProbeNeeds needs = suite_->probes().back()->Needs(INT64_MAX / 2);
  EXPECT_THAT(needs.text, HasSubstr("the mean of the last 3 snapshots"));
  EXPECT_THAT(needs.text, HasSubstr("decay 0.9"));
  const int64_t parameters = 24 * 16 + 24 + 24 * 24 + 8 * 24;
  EXPECT_EQ(needs.always_bytes, 3 * 4 * parameters + 8 * parameters);
}

TEST_F(AveragingTest, IsAbsentIfSwitchedOff) {
  net_.options.averaging.enabled = false;
  Open();
  Snapshot(1);
  EXPECT_TRUE(Snapshot(2).averaging.empty());
}

}  // namespace averaging_probe_test
}  // namespace ptqwatch::internal
