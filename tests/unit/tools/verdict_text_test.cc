#include "verdict_text.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/sample_report.h"

namespace ptqwatch::internal {
namespace verdict_text_test {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(VerdictBlock, LeavesOutWhatIsNotKnown) {
  Verdict verdict;
  verdict.state = VerdictState::kHealthy;
  verdict.summary = "as expected";
  EXPECT_EQ(VerdictBlock(verdict, {}), "verdict    healthy: as expected\n");
  verdict.severity_nats = -0.01;
  verdict.sigmas = -0.5;
  verdict.evidence.emplace_back().series = "trace\n";
  verdict.evidence[0].value = 120;
  verdict.outlook.emplace_back().bits = 3;
  EXPECT_EQ(VerdictBlock(verdict, {}),
            "verdict    healthy: as expected\n"
            "severity   -0.0100 nats\n"
            "evidence   -0.500 sigmas together\n"
            "           trace? 120\n");
}

TEST(VerdictBlock, SaysFromWhereOnTheLossIsNoQuadratic) {
  Verdict verdict;
  verdict.evidence.emplace_back().series = "beyond_quadratic_gptq3";
  verdict.evidence[0].value = 0.75;
  EXPECT_THAT(VerdictBlock(verdict, {}),
              HasSubstr("evidence   the loss beyond the quadratic: from 0.750 times the error of "
                        "gptq3 on\n"));
}

TEST(VerdictBlock, NeverPrintsANonFiniteNumber) {
  Verdict verdict = testing::SampleVerdict();
  const double nan = std::nan("");
  verdict.severity_nats = verdict.severity_low_ratio = verdict.sigmas = nan;
  verdict.evidence[0].expected = nan;
  verdict.outlook[0].gain_kept_ratio = nan;
  verdict.outlook[0].minimum_learning_rate = nan;
  const std::string text = VerdictBlock(verdict, {});
  EXPECT_THAT(text, Not(HasSubstr("nan")));
  EXPECT_THAT(text, HasSubstr("severity   2.10 times the baseline\n"));
  EXPECT_THAT(text, HasSubstr("evidence   loss_delta_gptq3 0.208, mean ratio 2.10"));
  EXPECT_THAT(text, HasSubstr("outlook    gptq3 lowest loss 1.7000 nats at step 14000\n"));
}

TEST(VerdictBlock, NamesEachKindOfLineOnce) {
  Verdict verdict = testing::SampleVerdict();
  verdict.advice.push_back(verdict.advice[0]);
  verdict.advice[1].text = "or \x1b keep the rate";
  EXPECT_THAT(
      VerdictBlock(verdict, {}),
      HasSubstr("advice     average the last 6 snapshots\n           or ? keep the rate\n"));
}

Report WithAverage() {
  Report report = testing::SampleReport().report;
  AveragingReport& average = report.averaging[0];
  average.kind = AveragingKind::kWindow;
  average.snapshots = 6;
  average.status = ProbeStatus::kOk;
  average.loss_nats = 1.66;
  average.quantization = {testing::SampleQuantization(QuantizationMethod::kGptq, 3, 0.07)};
  report.averaging.resize(1);
  return report;
}

TEST(AveragingBlock, NamesTheBestOfSeveral) {
  Report report = WithAverage();
  AveragingReport merge = report.averaging[0];
  merge.kind = AveragingKind::kMerge;
  merge.shape = DecayShape::kOneMinusSqrt;
  merge.snapshots = 3;
  merge.loss_nats = 1.67;
  merge.quantization[0].loss_nats = 1.70;
  report.averaging[0].quantization[0].loss_nats = 1.71;
  report.averaging.push_back(merge);
  EXPECT_EQ(AveragingBlock(report, {}),
            "average    of 6 snapshots: loss 1.6600, gptq3 E 4.00+-0.20%\n"
            "           of 3 snapshots (weights of a one_minus_sqrt decay): loss 1.6700, gptq3 E "
            "4.00+-0.20%\n"
            "           lowest loss: of 6 snapshots; gptq3: of 3 snapshots (weights of a "
            "one_minus_sqrt decay)\n");
  for (AveragingReport& average : report.averaging) {
    average.quantization.push_back(testing::SampleQuantization(QuantizationMethod::kRtn, 4, 0.02));
  }
  report.averaging[0].quantization[1].loss_nats = 1.68;
  EXPECT_THAT(AveragingBlock(report, {}),
              HasSubstr("; gptq3: of 3 snapshots (weights of a one_minus_sqrt decay); rtn4: of 6 "
                        "snapshots\n"));
  report.averaging[0].loss_nats.reset();
  EXPECT_THAT(AveragingBlock(report, {}), Not(HasSubstr("lowest")));
}

TEST(AveragingBlock, ShowsWhatTheAverageWouldGive) {
  Report report = WithAverage();
  EXPECT_EQ(AveragingBlock(report, {}),
            "average    of 6 snapshots: loss 1.6600, gptq3 E 4.00+-0.20%\n");
  AveragingReport& average = report.averaging[0];
  average.kind = AveragingKind::kExponential;
  average.decay = 0.9;
  average.snapshots = 1;
  average.status = ProbeStatus::kFailed;
  average.status_detail = "boom";
  EXPECT_EQ(AveragingBlock(report, {}), "average    of 1 snapshot (decay 0.900): failed: boom\n");
  average.kind = AveragingKind::kMerge;
  average.shape.reset();
  EXPECT_EQ(AveragingBlock(report, {}), "average    by merges: failed: boom\n");
  report.averaging.clear();
  EXPECT_EQ(AveragingBlock(report, {}), "");
}

TEST(PredictionBlock, ShowsWhatTheDecayWouldEndWith) {
  Report report = testing::SampleReport().report;
  EXPECT_EQ(PredictionBlock(report),
            "predicted  decay of 3200 steps, from step 8000: loss 1.580, gptq3 E 8.8% (7.1 to "
            "10.9)\n");
  report.predicted_end->quantization[0].error_low_ratio.reset();
  EXPECT_THAT(PredictionBlock(report), HasSubstr("gptq3 E -\n"));
  report.predicted_end->status = ProbeStatus::kFailed;
  report.predicted_end->status_detail = "train_step: \x1b boom";
  EXPECT_EQ(PredictionBlock(report),
            "predicted  decay of 3200 steps, from step 8000: failed: train_step: ? boom\n");
  report.predicted_end.reset();
  EXPECT_EQ(PredictionBlock(report), "");
}

TEST(MixedPrecisionBlock, ShowsWhatRaisingLayersWouldGive) {
  Report report = testing::SampleReport().report;
  EXPECT_EQ(MixedPrecisionBlock(report, {}),
            "mixed      gptq3, 1 layer at 4 bits: 0.208 -> 0.1600+-0.0070 nats\n");
  report.mixed_precision[0].raised_layers.push_back("blocks.1.weight");
  report.mixed_precision[0].status = ProbeStatus::kOutOfTime;
  report.mixed_precision[0].status_detail.clear();
  EXPECT_EQ(MixedPrecisionBlock(report, {}), "mixed      gptq3, 2 layers at 4 bits: out_of_time\n");
}

TEST(PooledBlock, ShowsAllProbeSetsOrWhichAreMissing) {
  Report report = testing::SampleReport().report;
  EXPECT_EQ(PooledBlock(report, {}),
            "pooled     gptq3 E 11.70+-0.30%, 0.2050+-0.0060 nats on 196608 tokens of 3 sets\n");
  report.pooled->status = ProbeStatus::kOtherRank;
  report.pooled->status_detail = "set 2: left to rank 3";
  EXPECT_EQ(PooledBlock(report, {}), "pooled     other_rank: set 2: left to rank 3\n");
  report.pooled.reset();
  EXPECT_EQ(PooledBlock(report, {}), "");
}

TEST(NoiseBlock, ShowsWhatNoiseCosts) {
  Report report = testing::SampleReport().report;
  EXPECT_EQ(
      NoiseBlock(report, {}),
      "noise      +0.0310+-0.0015 nats, noise of 10% of the norm of each weight, 6.25% of the "
      "routers' choices change\n");
  report.noise->routing_change_ratio.reset();
  EXPECT_EQ(NoiseBlock(report, {}),
            "noise      +0.0310+-0.0015 nats, noise of 10% of the norm of each weight\n");
  report.noise->status = ProbeStatus::kNonFinite;
  report.noise->status_detail = "the loss under noise is not finite";
  EXPECT_EQ(NoiseBlock(report, {}), "noise      nonfinite: the loss under noise is not finite\n");
  report.noise.reset();
  EXPECT_EQ(NoiseBlock(report, {}), "");
}

}  // namespace verdict_text_test
}  // namespace ptqwatch::internal
