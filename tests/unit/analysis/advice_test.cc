#include "analysis/advice.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace advice_test {

using ::testing::HasSubstr;

QuantizationReport Quantized(double loss, double delta) {
  QuantizationReport entry;
  entry.method = QuantizationMethod::kGptq;
  entry.bits = 3;
  entry.status = ProbeStatus::kOk;
  entry.loss_nats = loss;
  entry.delta_nats = delta;
  entry.delta_stderr_nats = 0.005;
  return entry;
}

Report WithAverage(double loss) {
  Report report;
  report.quantization = {Quantized(1.77, 0.158)};
  AveragingReport& average = report.averaging.emplace_back();
  average.kind = AveragingKind::kWindow;
  average.window = 6;
  average.snapshots = 5;
  average.status = ProbeStatus::kOk;
  average.quantization = {Quantized(loss, 0.101)};
  return report;
}

Verdict Alarm(VerdictState state = VerdictState::kDecayDegradation) {
  Verdict verdict;
  verdict.state = state;
  verdict.method = QuantizationMethod::kGptq;
  verdict.bits = 3;
  verdict.onset_step = 14400;
  return verdict;
}

TEST(Advice, AveragesIfThatWasMeasuredToHelp) {
  const auto advice = AdviceFor(WithAverage(1.72), Alarm());
  ASSERT_EQ(advice.size(), 1U);
  EXPECT_EQ(advice[0].action, AdviceAction::kAverageWeights);
  EXPECT_EQ(advice[0].now_nats, 1.77);
  EXPECT_EQ(advice[0].expected_nats, 1.72);
  EXPECT_NEAR(*advice[0].expected_stderr_nats, 0.00707, 1e-5);
  EXPECT_THAT(advice[0].text,
              HasSubstr("use the mean of the last 5 snapshots: loss with 3-bit GPTQ 1.7700 -> "
                        "1.7200, a gain of 0.0500 (+-0.0071) nats; loss increase 0.158 -> 0.101"));
}

TEST(Advice, NamesTheBestOfTheAverages) {
  Report report = WithAverage(1.72);
  AveragingReport merge = report.averaging[0];
  merge.kind = AveragingKind::kMerge;
  merge.shape = DecayShape::kOneMinusSqrt;
  merge.snapshots = merge.window = 3;
  merge.quantization = {Quantized(1.71, 0.09)};
  report.averaging.push_back(merge);
  auto advice = AdviceFor(report, Alarm());
  ASSERT_EQ(advice.size(), 1U);
  EXPECT_EQ(advice[0].expected_nats, 1.71);
  EXPECT_THAT(advice[0].text,
              HasSubstr("use the merge of the last 3 snapshots that emulates a one minus sqrt "
                        "decay: loss with 3-bit GPTQ 1.7700 -> 1.7100, a gain of 0.0600"));
  report.averaging[1].quantization = {Quantized(1.73, 0.09)};
  advice = AdviceFor(report, Alarm());
  ASSERT_EQ(advice.size(), 1U);
  EXPECT_THAT(advice[0].text, HasSubstr("the mean of the last 5 snapshots"));
}

TEST(Advice, TakesTheGainOnTheSameTokens) {
  Report report = WithAverage(1.72);
  QuantizationReport& entry = report.averaging[0].quantization[0];
  entry.change_nats = -0.04;
  entry.change_stderr_nats = 0.002;
  const auto advice = AdviceFor(report, Alarm());
  ASSERT_EQ(advice.size(), 1U);
  EXPECT_DOUBLE_EQ(*advice[0].expected_nats, 1.73);
  EXPECT_EQ(advice[0].expected_stderr_nats, 0.002);
  EXPECT_THAT(advice[0].text, HasSubstr("1.7700 -> 1.7300, a gain of 0.0400 (+-0.0020) nats"));
  entry.change_stderr_nats = 0.021;
  EXPECT_TRUE(AdviceFor(report, Alarm()).empty());
}

TEST(Advice, NamesTheBestAverageOfEachWidth) {
  const auto rtn4 = [](double loss) {
    QuantizationReport entry = Quantized(loss, 0.03);
    entry.method = QuantizationMethod::kRtn;
    entry.bits = 4;
    return entry;
  };
  Report report = WithAverage(1.72);
  report.quantization.push_back(rtn4(1.65));
  report.averaging[0].quantization.push_back(rtn4(1.60));
  AveragingReport merge = report.averaging[0];
  merge.kind = AveragingKind::kMerge;
  merge.shape = DecayShape::kCosine;
  merge.snapshots = 3;
  merge.quantization = {Quantized(1.71, 0.1), rtn4(1.63)};
  report.averaging.push_back(merge);
  const auto advice = AdviceFor(report, Alarm());
  ASSERT_EQ(advice.size(), 2U);
  EXPECT_THAT(advice[0].text, HasSubstr("use the merge of the last 3 snapshots that emulates a "
                                        "cosine decay: loss with 3-bit GPTQ 1.7700 -> 1.7100"));
  EXPECT_EQ(advice[0].bits, 3);
  EXPECT_THAT(advice[1].text, HasSubstr("use the mean of the last 5 snapshots: loss with 4-bit "
                                        "RTN 1.6500 -> 1.6000"));
  EXPECT_EQ(advice[1].method, QuantizationMethod::kRtn);
  EXPECT_EQ(advice[1].bits, 4);
}

TEST(Advice, SaysNothingWithoutAGainThatStandsOut) {
  EXPECT_TRUE(AdviceFor(WithAverage(1.76), Alarm()).empty());
  EXPECT_TRUE(AdviceFor(WithAverage(1.80), Alarm()).empty());
  Report failed = WithAverage(1.6);
  failed.averaging[0].status = ProbeStatus::kNonFinite;
  EXPECT_TRUE(AdviceFor(failed, Alarm()).empty());
}

TEST(Advice, SaysNothingWithoutAnAlarm) {
  EXPECT_TRUE(AdviceFor(WithAverage(1.6), Alarm(VerdictState::kHealthy)).empty());
  EXPECT_TRUE(AdviceFor(WithAverage(1.6), Alarm(VerdictState::kUnclear)).empty());
}

TEST(Advice, PutsTheLargestGainFirst) {
  Report report = WithAverage(1.72);
  MixedPrecisionReport& mixed = report.mixed_precision.emplace_back();
  mixed.method = QuantizationMethod::kGptq;
  mixed.bits = 3;
  mixed.raised_bits = 4;
  mixed.raised_layers = {"blocks.1.mlp.down.weight", "blocks.0.attn.qkv.weight"};
  mixed.mean_bits = 3.2;
  mixed.status = ProbeStatus::kOk;
  mixed.delta_nats = 0.06;
  mixed.delta_stderr_nats = 0.004;
  Verdict verdict = Alarm();
  verdict.outlook = {{QuantizationMethod::kGptq, 3, 0.1, 0.05, 1.74, 14000, 0.006}};
  const auto advice = AdviceFor(report, verdict);
  ASSERT_EQ(advice.size(), 3U);
  EXPECT_EQ(advice[0].action, AdviceAction::kRaiseBits);
  EXPECT_THAT(
      advice[0].text,
      HasSubstr("keep blocks.1.mlp.down.weight and 1 more at 4 bits, the rest at 3 (3.20 on "
                "average): loss increase 0.158 -> 0.06"));
  EXPECT_EQ(advice[1].action, AdviceAction::kAverageWeights);
  EXPECT_EQ(advice[2].action, AdviceAction::kStopDecay);
  EXPECT_THAT(advice[2].text, HasSubstr("lowest (1.7400) at step 14000 with learning rate 0.006"));
}

// The watched quantizer, 12 MB, and others of 4 bits.
Report WithSizes() {
  Report report;
  report.quantization = {Quantized(1.77, 0.158)};
  report.quantization[0].artifact_bytes = 12'000'000;
  const auto add = [&](QuantizationMethod method, double delta, int64_t bytes) {
    QuantizationReport& entry = report.quantization.emplace_back(Quantized(1.612 + delta, delta));
    entry.method = method;
    entry.bits = 4;
    entry.artifact_bytes = bytes;
  };
  add(QuantizationMethod::kRtn, 0.12, 11'000'000);
  add(QuantizationMethod::kGptq, 0.05, 13'000'000);  // larger
  add(QuantizationMethod::kAwq, 0.1, 12'000'000);
  return report;
}

TEST(Advice, NamesTheQuantizerThatLosesLeastInNoMoreBytes) {
  const auto advice = AdviceFor(WithSizes(), Alarm());
  ASSERT_EQ(advice.size(), 1U);
  EXPECT_EQ(advice[0].action, AdviceAction::kUseQuantizer);
  EXPECT_EQ(advice[0].method, QuantizationMethod::kAwq);
  EXPECT_EQ(advice[0].bits, 4);
  EXPECT_EQ(advice[0].now_nats, 0.158);
  EXPECT_EQ(advice[0].expected_nats, 0.1);
  EXPECT_NEAR(*advice[0].expected_stderr_nats, 0.00707, 1e-5);
  EXPECT_THAT(advice[0].text,
              HasSubstr("use 4-bit AWQ instead of 3-bit GPTQ: of the run's quantizers it loses "
                        "least in no more bytes, 12.000 MB instead of 12.000; loss increase 0.158 "
                        "-> 0.1 (+-0.0071) nats"));
}

TEST(Advice, KeepsTheQuantizerThatNoneBeatsInLossAndBytes) {
  Report report = WithSizes();
  report.quantization[3].artifact_bytes = 12'000'001;
  report.quantization[1].delta_nats = 0.145;  // within two standard errors
  EXPECT_TRUE(AdviceFor(report, Alarm()).empty());
  report = WithSizes();
  for (size_t i = 1; i < 4; ++i) report.quantization[i].status = ProbeStatus::kOutOfTime;
  EXPECT_TRUE(AdviceFor(report, Alarm()).empty());
  report = WithSizes();
  report.quantization[0].artifact_bytes.reset();
  EXPECT_TRUE(AdviceFor(report, Alarm()).empty());
  report = WithSizes();
  for (size_t i = 1; i < 4; ++i) report.quantization[i].artifact_bytes.reset();
  EXPECT_TRUE(AdviceFor(report, Alarm()).empty());
}

TEST(Advice, ASpikeIsToBeLookedAtFirst) {
  const auto advice = AdviceFor(WithAverage(1.72), Alarm(VerdictState::kSpike));
  ASSERT_EQ(advice.size(), 2U);
  EXPECT_EQ(advice[0].action, AdviceAction::kInspectRun);
  EXPECT_THAT(advice[0].text, HasSubstr("at step 14400"));
}

}  // namespace advice_test
}  // namespace ptqwatch::internal
