#include "probes/merge_probe.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "unit/probes/averaging_fixture.h"

namespace ptqwatch::internal {
namespace merge_probe_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MergeTest : public AveragingTest {
 protected:
  MergeTest() { net_.options.averaging = {.window = 5, .merges = true}; }

  // The updates between snapshots, each as often as the decay lets it count: in float64, by a loop
  // of its own, and not by the weights of the snapshots.
  static Weights Decayed(const std::vector<Weights>& snapshots, const std::vector<double>& rates) {
    Weights merged;
    for (size_t i = 0; i < snapshots[0].size(); ++i) {
      at::Tensor sum = snapshots[0][i].clone();
      float* out = sum.mutable_data_ptr<float>();
      for (int64_t k = 0; k < sum.numel(); ++k) {
        const auto at = [&](size_t j) {
          return static_cast<double>(snapshots[j][i].const_data_ptr<float>()[k]);
        };
        double value = at(0);
        for (size_t j = 1; j < snapshots.size(); ++j) value += rates[j] * (at(j) - at(j - 1));
        out[k] = static_cast<float>(value);
      }
      merged.push_back(sum);
    }
    return merged;
  }
  std::vector<Weights> WeightsOf(const std::vector<int64_t>& steps) const {
    std::vector<Weights> all;
    for (const int64_t step : steps) all.push_back(WeightsAt(step));
    return all;
  }
  // The merge of a report.
  static std::optional<AveragingReport> Find(const Report& report, DecayShape shape,
                                             int64_t snapshots) {
    for (const AveragingReport& average : report.averaging) {
      if (average.kind == AveragingKind::kMerge && average.shape == shape &&
          average.snapshots == snapshots) {
        return average;
      }
    }
    ADD_FAILURE() << "no merge " << ToString(shape) << " of " << snapshots;
    return std::nullopt;
  }
  static int Merges(const Report& report) {
    int count = 0;
    for (const AveragingReport& average : report.averaging) {
      count += average.kind == AveragingKind::kMerge && average.status == ProbeStatus::kOk;
    }
    return count;
  }
  // The losses agree but for the last bits of the weights.
  void ExpectLossesOf(const std::optional<AveragingReport>& merge, const Weights& weights) {
    ASSERT_TRUE(merge);
    const Report alone = Alone(weights);
    ASSERT_TRUE(merge->loss_nats && alone.probe_loss_nats) << merge->status_detail;
    EXPECT_NEAR(*merge->loss_nats, *alone.probe_loss_nats, 1e-6);
    ASSERT_EQ(merge->quantization.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(KeyOf(merge->quantization[i]), KeyOf(alone.quantization.at(1 - i)));
      // A weight in the middle between two codes may get the other one.
      EXPECT_NEAR(*merge->quantization[i].loss_nats, *alone.quantization[1 - i].loss_nats, 1e-3);
    }
  }
};

TEST_F(MergeTest, AreMeasuredOnTheTokensOfTheSnapshot) {
  Open();
  const Report all = Snapshot(10);
  // The finer quantizer is precise enough after one batch, the coarser one is not.
  net_.options.absolute_stderr_ratio = std::sqrt(3 * *all.quantization[0].delta_stderr_nats *
                                                 *all.quantization[1].delta_stderr_nats) /
                                       *all.probe_loss_nats;
  Open();
  for (const int64_t step : {10, 20, 30, 40}) Snapshot(step);
  const Report report = Snapshot(50);
  ASSERT_EQ(report.averaging.size(), 6u);
  EXPECT_LT(report.quantization[1].probe_tokens, report.quantization[0].probe_tokens);
  for (const AveragingReport& average : report.averaging) {
    for (size_t i = 0; i < 2; ++i) {
      const QuantizationReport& entry = average.quantization.at(i);
      const QuantizationReport& own = report.quantization[1 - i];
      EXPECT_EQ(entry.probe_tokens, own.probe_tokens);
      EXPECT_NEAR(*entry.change_nats, *entry.loss_nats - *own.loss_nats, 1e-12);
    }
  }
}

TEST_F(MergeTest, CountsEveryUpdateAsOftenAsTheDecayWould) {
  Open();
  for (const int64_t step : {10, 20, 30, 40}) Snapshot(step);
  const Report report = Snapshot(50);
  EXPECT_EQ(Merges(report), 5);
  const double r = std::sqrt(0.2);
  ExpectLossesOf(Find(report, DecayShape::kOneMinusSqrt, 5),
                 Decayed(WeightsOf({10, 20, 30, 40, 50}),
                         {1, 1 - r, 1 - std::sqrt(0.4), 1 - std::sqrt(0.6), 1 - std::sqrt(0.8)}));
  ExpectLossesOf(Find(report, DecayShape::kCosine, 3),
                 Decayed(WeightsOf({30, 40, 50}), {1, 0.75, 0.25}));
  ExpectLossesOf(Find(report, DecayShape::kLinear, 3), MeanOfAll(WeightsOf({30, 40, 50})));
  const auto half = Find(report, DecayShape::kLinear, 3);
  EXPECT_EQ(half->window, 3);
  EXPECT_EQ(half->first_step, 30);
  EXPECT_GT(report.cost.at("merges"), 0);
}

TEST_F(MergeTest, BeginsWithThreeSnapshots) {
  Open();
  Snapshot(10);
  EXPECT_EQ(Snapshot(20).averaging.size(), 1u);  // the mean
  const Report report = Snapshot(30);
  EXPECT_EQ(Merges(report), 2);
  EXPECT_EQ(Find(report, DecayShape::kCosine, 3)->first_step, 10);
}

TEST_F(MergeTest, MeasuresAsManyAsThePlanHas) {
  Open();
  ReportHeader header;
  header.plan = Plan{.probe_batches = 3, .calibration_batches = 3, .merges = 1};
  Snapshot(10, header);
  Snapshot(20, header);
  const Report one = Snapshot(30, header);
  EXPECT_EQ(Merges(one), 1);
  EXPECT_TRUE(Find(one, DecayShape::kOneMinusSqrt, 3));
  header.plan->merges = 0;
  const Report none = Snapshot(40, header);
  ASSERT_EQ(none.averaging.size(), 2u);
  EXPECT_EQ(none.averaging[0].status, ProbeStatus::kOk);
  EXPECT_EQ(none.averaging[1].kind, AveragingKind::kMerge);
  EXPECT_EQ(none.averaging[1].status, ProbeStatus::kDisabled);
  EXPECT_EQ(none.averaging[1].status_detail, "the plan has no time for merges");
}

TEST_F(MergeTest, LeavesSnapshotsAloneThatEnterNoAverage) {
  Open();
  for (const int64_t step : {10, 20}) Snapshot(step);
  ReportHeader additional;
  additional.snapshot.additional = true;
  for (const int64_t step : {24, 27}) EXPECT_EQ(Snapshot(step, additional).averaging.size(), 1u);
  EXPECT_EQ(Merges(Snapshot(30)), 2);
}

// Otherwise a plan would count on merges that take no time.
TEST_F(MergeTest, ShowNoCostIfTheyAreNotMeasured) {
  net_.options.averaging.spacing = 2;
  Open();
  const auto worked = [&](int64_t step) {
    Train(WeightsAt(step));
    net_.Load(*suite_);
    const auto measured = suite_->Measure({.step = step}, {});
    EXPECT_TRUE(measured.ok()) << measured.status();
    return measured.ok() && measured->work_seconds.contains(MergeProbe::kName);
  };
  for (const int64_t step : {1, 2, 3, 4}) EXPECT_FALSE(worked(step));
  EXPECT_TRUE(worked(5));
  EXPECT_FALSE(worked(6));
}

TEST_F(MergeTest, AreSwitchedOffByTheirField) {
  net_.options.averaging.merges = false;
  Open();
  for (const int64_t step : {10, 20}) Snapshot(step);
  EXPECT_EQ(Snapshot(30).averaging.size(), 1u);
  EXPECT_EQ(SnapshotCosts(suite_->Costs()).Most(&Plan::merges), 0);
}

TEST_F(MergeTest, EndWithTheAverages) {
  Open();
  suite_->Disable("averaging", "asked for");
  for (const int64_t step : {10, 20}) Snapshot(step);
  const Report report = Snapshot(30);
  ASSERT_EQ(report.averaging.size(), 1u);
  EXPECT_EQ(report.averaging[0].status, ProbeStatus::kDisabled);
}

TEST_F(MergeTest, SayWhatTheyCost) {
  Open();
  EXPECT_EQ(SnapshotCosts(suite_->Costs()).Most(&Plan::merges), 5);
  EXPECT_THAT(testing::DescribeProbes(*suite_), HasSubstr("merges: 5 weighted averages"));
  const std::vector<ProbeCost> costs = suite_->Costs();
  const Plan all{.probe_batches = 3, .calibration_batches = 3, .merges = 5};
  double quantization = 0, merges = 0;
  for (const ProbeCost& cost : costs) {
    if (cost.probe == "quantization") quantization = cost.Seconds(all);
    if (cost.probe == MergeProbe::kName) merges = cost.Seconds(all);
  }
  EXPECT_DOUBLE_EQ(merges, 5 * quantization);  // the same two quantizers
}

}  // namespace merge_probe_test
}  // namespace ptqwatch::internal
