#include "report_table.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "printable.h"
#include "support/sample_report.h"
#include "text_table.h"

namespace ptqwatch::internal {
namespace report_table_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SampleQuantization;
using testing::SampleReport;
using ::testing::StartsWith;

constexpr TextStyle kUtf8{.utf8 = true};

AnalyzedReport OfOneBranch() {
  AnalyzedReport report = SampleReport();
  report.report.branch.reset();
  report.report.pooled.reset();
  return report;
}

AnalyzedReport FourQuantizers() {
  AnalyzedReport report = OfOneBranch();
  report.report.quantization = {SampleQuantization(QuantizationMethod::kRtn, 3, 0.5),
                                SampleQuantization(QuantizationMethod::kRtn, 4, 0.05),
                                SampleQuantization(QuantizationMethod::kGptq, 4, 0.02),
                                SampleQuantization(QuantizationMethod::kGptq, 3, 0.08)};
  return report;
}

TEST(ReportTable, ShowsEverythingIfThereIsRoom) {
  ReportTable table(kUtf8);
  const auto lines = table.Add(OfOneBranch(), kUnlimitedColumns);
  EXPECT_EQ(
      lines.header,
      "  step       lr   phase    loss        gptq3         rtn4  top eig     trace     edge  "
      "verdict");
  EXPECT_EQ(lines.row,
            " 16000  3.33e-4   decay  1.7500  11.89\u00b10.59%   2.86\u00b10.14%     9.25"
            "    368\u00b112     0.83  decay");
}

TEST(ReportTable, IsAsciiWithoutUtf8) {
  ReportTable table(TextStyle{});
  const auto lines = table.Add(OfOneBranch(), kUnlimitedColumns);
  EXPECT_EQ(
      lines.row,
      " 16000  3.33e-4   decay  1.7500  11.89+-0.59%  2.86+-0.14%     9.25   368+-12     0.83  "
      "decay");
}

TEST(ReportTable, PutsGptqFirst) {
  ReportTable table(kUtf8);
  EXPECT_EQ(table.Add(FourQuantizers(), kUnlimitedColumns).header,
            "  step       lr   phase    loss        gptq3        gptq4         rtn3         rtn4"
            "  top eig     trace     edge  verdict");
}

TEST(ReportTable, FitsEightyColumnsWithWhatCounts) {
  ReportTable table(kUtf8);
  const auto lines = table.Add(FourQuantizers(), 80);
  EXPECT_EQ(lines.header,
            "  step      lr  phase   loss       gptq3       gptq4 top eig    trace verdict");
  EXPECT_EQ(lines.row,
            " 16000 3.33e-4  decay 1.7500  4.57\u00b10.23%  1.14\u00b10.06%    9.25   368\u00b112 "
            "decay");
}

TEST(ReportTable, LeavesOutTheLeastImportantFirst) {
  const auto header = [](size_t width) {
    ReportTable table(kUtf8);
    return *table.Add(FourQuantizers(), width).header;
  };
  EXPECT_THAT(header(112), HasSubstr("rtn4"));
  EXPECT_THAT(header(100), HasSubstr("rtn3"));
  EXPECT_THAT(header(100), Not(HasSubstr("rtn4")));
  EXPECT_EQ(header(73), "  step      lr  phase       gptq3       gptq4 top eig    trace verdict");
  EXPECT_EQ(header(60), "  step  phase       gptq3       gptq4 top eig verdict");
  EXPECT_EQ(header(41), "  step       gptq3       gptq4 verdict");
  EXPECT_EQ(header(30), "  step       gptq3 verdict");
  EXPECT_EQ(header(20), "  step       gptq3");
}

TEST(ReportTable, ShowsTheErrorOnAllProbeSetsOnceThereAreSome) {
  ReportTable table(kUtf8);
  AnalyzedReport report = OfOneBranch();
  report.report.curvature.reset();
  report.report.quantization.resize(1);
  EXPECT_THAT(*table.Add(report, 80).header, Not(HasSubstr("pooled")));
  report.report.pooled = testing::SamplePooled();
  const auto lines = table.Add(report, 80);
  EXPECT_THAT(*lines.header, HasSubstr("        gptq3       pooled  verdict"));
  EXPECT_THAT(lines.row, HasSubstr("  11.89\u00b10.59%  11.70\u00b10.30%  decay"));
  report.report.pooled->status = ProbeStatus::kOtherRank;
  EXPECT_THAT(table.Add(report, 80).row, HasSubstr("        other  decay"));
  report.report.pooled.reset();
  EXPECT_THAT(table.Add(report, 80).row, HasSubstr("            -  decay"));
}

TEST(ReportTable, NamesTheBranchOnceThereIsOne) {
  ReportTable table(kUtf8);
  AnalyzedReport report = FourQuantizers();
  EXPECT_THAT(*table.Add(report, 80).header, StartsWith("  step"));
  report.report.branch = "stage2\x1b";
  const auto lines = table.Add(report, 80);
  EXPECT_THAT(*lines.header, StartsWith("branch    step"));
  EXPECT_THAT(lines.row, StartsWith("stage2? "));
  report.report.branch.reset();
  EXPECT_THAT(table.Add(report, 80).row, StartsWith("-       "));
  ReportTable narrow(kUtf8);
  report.report.branch = "stage2";
  EXPECT_THAT(*narrow.Add(report, 30).header, Not(HasSubstr("branch")));
}

TEST(ReportTable, NeverIsWiderThanAsked) {
  AnalyzedReport report = FourQuantizers();
  report.report.step = std::numeric_limits<int64_t>::max();
  report.report.lr_phase = LrPhase::kSlowDecay;
  report.report.quantization[3].error_ratio = -1e300;
  report.report.quantization[3].error_ratio_stderr = 1e300;
  report.verdict.state = VerdictState::kWarmingUp;
  ReportTable table(kUtf8);
  for (size_t width = 1; width < 250; ++width) {
    table.RepeatHeader();
    const auto lines = table.Add(report, width);
    EXPECT_LE(DisplayWidth(lines.row), width);
    EXPECT_LE(DisplayWidth(*lines.header), width);
  }
}

TEST(ReportTable, RepeatsTheHeaderOnlyWhenAskedOrWhenColumnsChange) {
  ReportTable table(kUtf8);
  EXPECT_TRUE(table.Add(OfOneBranch(), 200).header.has_value());
  EXPECT_FALSE(table.Add(OfOneBranch(), 200).header.has_value());
  EXPECT_TRUE(table.Add(OfOneBranch(), 50).header.has_value());
  EXPECT_FALSE(table.Add(OfOneBranch(), 50).header.has_value());
  table.RepeatHeader();
  EXPECT_TRUE(table.Add(OfOneBranch(), 50).header.has_value());
  AnalyzedReport more = OfOneBranch();
  more.report.quantization.push_back(SampleQuantization(QuantizationMethod::kAwq, 4, 0.1));
  EXPECT_THAT(table.Add(more, 200).header.value_or(""), HasSubstr("awq4"));
}

TEST(ReportTable, KeepsTheColumnsOfAReportThatLacksThem) {
  ReportTable table(kUtf8);
  table.Add(OfOneBranch(), kUnlimitedColumns);
  AnalyzedReport failed = OfOneBranch();
  failed.report.quantization.clear();
  failed.report.curvature.reset();
  failed.report.probe_status = ProbeStatus::kFailed;
  failed.report.probe_loss_nats.reset();
  failed.report.lr_phase = LrPhase::kUnknown;
  failed.verdict = {};
  const auto lines = table.Add(failed, kUnlimitedColumns);
  EXPECT_FALSE(lines.header.has_value());
  EXPECT_EQ(
      lines.row,
      " 16000  3.33e-4       -  failed            -            -        -         -        -  -");
}

TEST(ReportTable, HasNoCurvatureColumnsIfItIsOff) {
  AnalyzedReport report = OfOneBranch();
  report.report.curvature.reset();
  ReportTable table(kUtf8);
  EXPECT_THAT(*table.Add(report, 200).header, Not(HasSubstr("trace")));
}

TEST(ReportTable, ShowsWordsForMeasurementsThatFailed) {
  const std::vector<std::pair<ProbeStatus, std::string>> cases = {
      {ProbeStatus::kNonFinite, "inf/nan"}, {ProbeStatus::kFailed, "failed"},
      {ProbeStatus::kOutOfTime, "timeout"}, {ProbeStatus::kCancelled, "stopped"},
      {ProbeStatus::kDisabled, "off"},      {ProbeStatus::kUnknown, "-"}};
  for (const auto& [status, word] : cases) {
    AnalyzedReport report = OfOneBranch();
    report.report.quantization[0].status = status;  // the number is still there and must not show
    report.report.curvature->status = status;
    report.report.curvature->trace_status.reset();
    report.report.curvature->edge_of_stability_status.reset();
    EXPECT_EQ(ErrorRatioCell(report.report.quantization[0], true), word);
    EXPECT_EQ(TopEigenvalueCell(*report.report.curvature), word);
    EXPECT_EQ(TraceCell(*report.report.curvature, true), word);
    EXPECT_EQ(EdgeCell(*report.report.curvature), word);
    report.report.probe_status = status;
    ReportTable table(kUtf8);
    EXPECT_THAT(table.Add(report, 200).row, Not(HasSubstr("1.7500")));
  }
}

TEST(ReportTable, ShowsWhichPartsOfCurvatureOtherRanksMeasure) {
  CurvatureReport curvature = testing::SampleCurvature();
  curvature.trace.reset();
  curvature.trace_status = ProbeStatus::kOtherRank;
  EXPECT_EQ(TopEigenvalueCell(curvature), "9.25");
  EXPECT_EQ(TraceCell(curvature, true), "other");
  EXPECT_EQ(EdgeCell(curvature), "0.83");
  curvature.edge_of_stability_ratio.reset();
  curvature.edge_of_stability_status = ProbeStatus::kOutOfTime;
  EXPECT_EQ(EdgeCell(curvature), "timeout");
}

TEST(ReportTable, NeverPrintsANonFiniteNumber) {
  AnalyzedReport report = OfOneBranch();
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    report.report.quantization[0].error_ratio = bad;
    report.report.quantization[1].error_ratio_stderr = bad;
    report.report.curvature->top_eigenvalue = bad;
    report.report.curvature->trace = bad;
    report.report.curvature->edge_of_stability_ratio = bad;
    report.report.probe_loss_nats = bad;
    report.report.learning_rate = bad;
    ReportTable table(kUtf8);
    EXPECT_EQ(table.Add(report, 200).row,
              " 16000        -   decay  inf/nan      inf/nan        2.86%  inf/nan   inf/nan  "
              "inf/nan  decay");
  }
}

TEST(ReportTable, ShowsAMissingValueOfAGoodMeasurementAsADash) {
  AnalyzedReport report = OfOneBranch();
  report.report.quantization[0].error_ratio.reset();
  report.report.curvature->top_eigenvalue.reset();
  report.report.curvature->trace.reset();
  EXPECT_EQ(ErrorRatioCell(report.report.quantization[0], true), "-");
  EXPECT_EQ(TopEigenvalueCell(*report.report.curvature), "-");
  EXPECT_EQ(TraceCell(*report.report.curvature, true), "-");
}

TEST(ReportTable, MarksAnEigenvalueThatIsNotSure) {
  CurvatureReport curvature = testing::SampleCurvature();
  EXPECT_EQ(TopEigenvalueCell(curvature), "9.25");
  curvature.top_eigenvalue_residual_ratio = 0.2;
  EXPECT_EQ(TopEigenvalueCell(curvature), "~9.25");
  curvature.top_eigenvalue_residual_ratio = 0.01;
  curvature.top_eigenvalue_upper = 11;
  EXPECT_EQ(TopEigenvalueCell(curvature), "~9.25");
}

TEST(ReportTable, ColoursVerdictsOnlyWhenAsked) {
  EXPECT_EQ(VerdictCell(VerdictState::kSpike, true), "\x1b[31mspike\x1b[0m");
  EXPECT_EQ(VerdictCell(VerdictState::kUnclear, true), "\x1b[33munclear\x1b[0m");
  EXPECT_EQ(VerdictCell(VerdictState::kHealthy, true), "healthy");
  EXPECT_EQ(VerdictCell(VerdictState::kUnknown, true), "-");
  EXPECT_EQ(VerdictCell(VerdictState::kDecayDegradation, false), "decay_degradation");
  ReportTable plain(kUtf8), coloured(TextStyle{.utf8 = true, .color = true});
  const auto bare = plain.Add(OfOneBranch(), 200);
  EXPECT_THAT(bare.row + *bare.header, Not(HasSubstr("\x1b")));
  const auto painted = coloured.Add(OfOneBranch(), 200);
  EXPECT_THAT(painted.row, ::testing::EndsWith("\x1b[31m  decay\x1b[0m"));
  EXPECT_THAT(*painted.header, StartsWith("\x1b[1m"));
}

TEST(ReportTable, CutsTextNotColours) {
  ReportTable table(TextStyle{.utf8 = true, .color = true});
  AnalyzedReport report = OfOneBranch();
  report.report.quantization.clear();
  report.report.curvature.reset();
  const auto lines = table.Add(report, 9);
  EXPECT_EQ(lines.row, " 16000");
}

TEST(QuantizerNames, TellAlikeOnesApart) {
  std::vector<QuantizationReport> entries = {SampleQuantization(QuantizationMethod::kGptq, 3, 1),
                                             SampleQuantization(QuantizationMethod::kGptq, 3, 1),
                                             SampleQuantization(QuantizationMethod::kGptq, 4, 1),
                                             SampleQuantization(QuantizationMethod::kRtn, 4, 1),
                                             SampleQuantization(QuantizationMethod::kGptq, 3, 1)};
  entries[1].group_size = -1;
  EXPECT_THAT(QuantizerNames(entries),
              ElementsAre("gptq3/g128", "gptq3/row", "gptq4", "rtn4", "gptq3/g128#2"));
}

TEST(QuantizerNames, TellFormatsApart) {
  std::vector<QuantizationReport> entries(3, SampleQuantization(QuantizationMethod::kRtn, 4, 1));
  entries[0].format.reset();
  entries[1].format = "mxfp4";
  entries[2].format = "mxfp4-h32";
  EXPECT_THAT(QuantizerNames(entries), ElementsAre("rtn4", "rtn-mxfp4", "rtn-mxfp4-h32"));
}

TEST(WatchedQuantizer, IsOfTheVerdictsFormat) {
  AnalyzedReport analyzed;
  analyzed.report.quantization.assign(2, SampleQuantization(QuantizationMethod::kGptq, 4, 1));
  analyzed.report.quantization[1].format = "nvfp4";
  analyzed.verdict.method = QuantizationMethod::kGptq;
  analyzed.verdict.bits = 4;
  EXPECT_EQ(WatchedQuantizer(analyzed), &analyzed.report.quantization[0]);
  analyzed.verdict.format = "nvfp4";
  EXPECT_EQ(WatchedQuantizer(analyzed), &analyzed.report.quantization[1]);
}

}  // namespace report_table_test
}  // namespace ptqwatch::internal
