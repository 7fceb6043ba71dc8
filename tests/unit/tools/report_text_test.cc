#include "report_text.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/sample_report.h"

namespace ptqwatch::internal {
namespace report_text_test {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ReportBlock, ShowsAllQuantizersAndTheVerdict) {
  AnalyzedReport report = testing::SampleReport();
  report.report.quantization[0].loss_nats = 1.5;  // on fewer tokens
  report.report.quantization[1].status = ProbeStatus::kOutOfTime;
  EXPECT_EQ(
      ReportBlock(report, 1700000032.0, {.utf8 = true}),
      "report     12 of step 16000, 32 s ago, lr 3.33e-4, decay\n"
      "loss       1.7500\u00b10.0040 nats on 65536 tokens, 0.7768 bits a byte\n"
      "curvature  top eigenvalue 9.25 (at most 9.75, residual 0.040), trace 368\u00b112, edge "
      "of stability 0.83 (adamw), of quantized_weights, by finite differences (an operator has no "
      "second derivative)\n"
      "verdict    decay_degradation since step 14400: 3-bit GPTQ costs 0.208 nats\n"
      "onsets     the rate began to fall at step 12801\n"
      "           the rise began between steps 13200 and 14400\n"
      "           the loss stopped improving at step 9600\n"
      "severity   +0.109 nats (0.0800 to 0.140), 2.10 times the baseline (1.80 to 2.40)\n"
      "evidence   9.50 sigmas together; an alarm needs 3.50\n"
      "           loss_delta_gptq3 0.208, expected 0.0990, mean ratio 2.10, 8.50 sigmas\n"
      "outlook    gptq3 keeps 20.0\u00b15.0 % of the decay's gain; lowest loss 1.7000 nats at step "
      "14000, lr 6.00e-3\n"
      "advice     average the last 6 snapshots\n"
      "average    of 5 snapshots (decay 0.900): loss 1.6600, gptq3 E 3.66\u00b10.18%\n"
      "mixed      gptq3, 1 layer at 4 bits: 0.208 -> 0.1600\u00b10.0070 nats\n"
      "pooled     gptq3 E 11.70\u00b10.30%, 0.2050\u00b10.0060 nats on 196608 tokens of 3 sets\n"
      "noise      +0.0310\u00b10.0015 nats, noise of 10% of the norm of each weight, 6.25% of the "
      "routers' choices change\n"
      "predicted  decay of 3200 steps, from step 8000: loss 1.580, gptq3 E 8.8% (7.1 to 10.9)\n"
      "\n"
      "quantizer        error  loss change (nats)  predicted  on its batch  covered  bits/weight   "
      "   "
      "MB  bits/byte\n"
      "gptq3      11.89\u00b10.59%         0.208\u00b10.010      0.187   0.229\u00b10.014    "
      "30.0%        2.625  12.000     0.8692\n"
      "rtn4           timeout                   -          -             -    30.0%            -   "
      "    "
      "-          -\n"
      "gptq3: 2.08% of the routers' choices change; experts with 0.4% of the rows had too few to "
      "be "
      "calibrated\n");
}

TEST(ReportBlock, SaysWhatNothingRestsOn) {
  AnalyzedReport report = testing::SampleReport();
  report.report.quantization[0].prediction_detail = "the prediction\x1b";
  EXPECT_THAT(ReportBlock(report, 0, {}),
              HasSubstr("\ngptq3: the prediction?; the prediction is not used\n"));
}

TEST(ReportBlock, HasNoColumnsOfWhatNoReportHas) {
  AnalyzedReport report = testing::SampleReport();
  report.report.bytes_per_token.reset();
  for (QuantizationReport& entry : report.report.quantization) {
    entry.entropy_bits.reset();
    entry.artifact_bytes.reset();
  }
  const std::string text = ReportBlock(report, 0, {});
  EXPECT_THAT(text, HasSubstr("nats on 65536 tokens\n"));
  EXPECT_THAT(text, HasSubstr("  covered\n"));
}

TEST(ReportBlock, CountsTheExamplesOfAClassifier) {
  AnalyzedReport report = testing::SampleReport();
  report.report.probe_examples = 4000;
  EXPECT_THAT(ReportBlock(report, 0, {}), HasSubstr("nats on 4000 examples,"));
}

TEST(ReportBlock, SaysWhyThereIsNoEdgeOfStability) {
  AnalyzedReport report = testing::SampleReport();
  report.report.curvature->edge_of_stability_ratio.reset();
  report.report.curvature->edge_of_stability_detail = "no moment\x1b";
  EXPECT_THAT(ReportBlock(report, 0, {}), HasSubstr(", no edge of stability (no moment?), of "));
  report.report.curvature->edge_of_stability_detail.clear();
  EXPECT_THAT(ReportBlock(report, 0, {}), Not(HasSubstr("edge")));
}

TEST(ReportBlock, SaysWhichRankMeasuresTheTrace) {
  AnalyzedReport report = testing::SampleReport();
  report.report.curvature->trace.reset();
  report.report.curvature->trace_status = ProbeStatus::kOtherRank;
  report.report.curvature->trace_detail = "left to rank 1";
  EXPECT_THAT(ReportBlock(report, 0, {}), HasSubstr(", trace other (left to rank 1), edge of "));
}

TEST(ReportBlock, SaysWhyThereAreNoNumbers) {
  AnalyzedReport report;
  report.report.probe_status = ProbeStatus::kFailed;
  report.report.probe_status_detail = "the closure threw:\n\x1b[31mboom";
  report.report.curvature.emplace().status = ProbeStatus::kDisabled;
  report.report.curvature->status_detail = "after 3 failures";
  const std::string text = ReportBlock(report, 0, {});
  EXPECT_THAT(text, HasSubstr("loss       failed: the closure threw:??[31mboom\n"));
  EXPECT_THAT(text, HasSubstr("curvature  disabled: after 3 failures\n"));
  EXPECT_THAT(text, HasSubstr("verdict    -\n"));
}

}  // namespace report_text_test
}  // namespace ptqwatch::internal
