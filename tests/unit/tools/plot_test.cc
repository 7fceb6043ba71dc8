#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gnuplot.h"
#include "gtest/gtest.h"
#include "plot_command.h"
#include "plot_script.h"
#include "support/sample_report.h"
#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace plot_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ReadFile;
using testing::SampleReport;
using ::testing::StartsWith;
using testing::TempDir;
using testing::WriteFile;

// `name` at steps 1000, 2000, ...
PlottedRun Sample(const std::string& name, int64_t reports) {
  PlottedRun run{.name = name, .reports = {}};
  for (int64_t i = 1; i <= reports; ++i) {
    AnalyzedReport report = SampleReport();
    report.report.sequence = i;
    report.report.step = 1000 * i;
    report.report.lr_phase = LrPhase::kStable;
    report.verdict.state = VerdictState::kHealthy;
    run.reports.push_back(report);
  }
  return run;
}

std::string Script(const std::vector<PlottedRun>& runs, const PlotOptions& options = {}) {
  const absl::StatusOr<std::string> script = PlotScript(runs, options);
  EXPECT_TRUE(script.ok()) << script.status();
  return script.value_or("");
}

std::string Draw(const std::string& script) {
  const absl::StatusOr<std::string> image = RunGnuplot(script);
  EXPECT_TRUE(image.ok()) << image.status();
  return image.value_or("");
}

TEST(Plot, ShowsEveryQuantizerOfARun) {
  const PlottedRun run = Sample("run-7", 3);
  const std::string svg = Draw(Script({run}));
  EXPECT_THAT(svg, AllOf(HasSubstr("<svg"), HasSubstr("</svg>"), HasSubstr(">run-7<"),
                         HasSubstr(">full precision<"), HasSubstr("learning rate")));
  for (const QuantizationReport& entry : run.reports[0].report.quantization) {
    EXPECT_THAT(svg, HasSubstr(">" + ShortName(ToString(entry.method), entry.bits) + "<"));
  }
}

TEST(Plot, ShowsTheFirstQuantizerOfSeveralRuns) {
  const std::string script = Script({Sample("a", 2), Sample("b", 2)});
  EXPECT_THAT(script, AllOf(HasSubstr("'a gptq3'"), HasSubstr("'b gptq3'"), HasSubstr("'b trace'"),
                            Not(HasSubstr("rtn")), HasSubstr("title 'a, b'")));
  EXPECT_THAT(Draw(script), HasSubstr(">b gptq3<"));
}

TEST(Plot, MarksDecayAlarmAndOnset) {
  PlottedRun run = Sample("run", 4);
  run.reports[2].report.lr_phase = run.reports[3].report.lr_phase = LrPhase::kDecay;
  run.reports[3].verdict.state = VerdictState::kDecayDegradation;
  run.reports[3].verdict.onset_step = 3000;
  const std::string script = Script({run});
  EXPECT_THAT(
      script,
      AllOf(HasSubstr("rect from 2000, graph 0 to 3000,"),
            HasSubstr("rect from 3000, graph 0 to 4000,"), Not(HasSubstr("rect from 1000")),
            HasSubstr("set label 'alarm' at 4000"), HasSubstr("set label 'onset' at 3000")));
  EXPECT_THAT(Draw(script), AllOf(HasSubstr(">alarm<"), HasSubstr(">onset<")));
}

TEST(Plot, WhatWasNotMeasuredIsAGap) {
  PlottedRun run = Sample("run", 3);
  run.reports[1].report.quantization.clear();
  run.reports[1].report.curvature.reset();
  run.reports[1].report.probe_loss_nats.reset();
  const std::string script = Script({run});
  EXPECT_THAT(script, HasSubstr("\n2000 NaN NaN NaN NaN\n"));
  EXPECT_FALSE(Draw(script).empty());
}

TEST(Plot, DrawsARunThatHasNextToNothing) {
  PlottedRun run{.name = "run", .reports = {AnalyzedReport()}};
  EXPECT_FALSE(Draw(Script({run})).empty());
}

TEST(Plot, AResumedRunDoesNotGoBack) {
  PlottedRun run = Sample("run", 3);
  run.reports[2].report.step = 1500;
  EXPECT_THAT(Script({run}), HasSubstr("\n\n1500 "));
}

TEST(Plot, NamesAreNoCommands) {
  const TempDir dir;
  const std::string made = dir.File("made");
  const std::string name = "it's`touch " + made + "`\nset output '" + made + "'\n# \"$(x)\\";
  EXPECT_FALSE(Draw(Script({Sample(name, 2), Sample("b", 2)})).empty());
  EXPECT_FALSE(std::ifstream(made).good());
}

TEST(Plot, NamesTheNearestQuantizer) {
  const absl::Status status = PlotScript({Sample("run", 1)}, {.quantizers = {"gptq33"}}).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("'gptq33'"), HasSubstr("did you mean gptq3?")));
}

TEST(Plot, WritesAFileOrNothing) {
  const TempDir dir;
  PlotFlags flags;
  flags.journals = {dir.File("journal.jsonl")};
  flags.output = dir.File("run.png");
  flags.options.format = PlotFormat::kPng;
  std::string lines;
  for (const AnalyzedReport& report : Sample("run", 5).reports) lines += ToJson(report) + "\n";
  WriteFile(flags.journals[0], lines);
  const absl::StatusOr<std::string> said = WritePlot(flags);
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_THAT(*said, HasSubstr("run.png: 5 reports, "));
  const std::string png = ReadFile(flags.output);
  EXPECT_THAT(png, StartsWith("\x89PNG\r\n"));
  // Width and height, in the first chunk.
  EXPECT_EQ(png.substr(16, 8), std::string("\0\0\x04\xb0\0\0\x03\xe8", 8));

  flags.output = dir.File("none/run.svg");
  EXPECT_THAT(std::string(WritePlot(flags).status().message()), HasSubstr(flags.output));
  flags.journals = {dir.File("nowhere")};
  EXPECT_THAT(std::string(WritePlot(flags).status().message()), HasSubstr(flags.journals[0]));
}

TEST(Gnuplot, SaysWhatIsWrong) {
  const absl::Status status = RunGnuplot("plot nonsense(\n").status();
  EXPECT_TRUE(absl::IsInternal(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("gnuplot could not draw: line "), Not(HasSubstr("\n"))));
}

}  // namespace plot_test
}  // namespace ptqwatch::internal
