#include "replay_command.h"

#include <string>

#include "captured_terminal.h"
#include "commands.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ptqwatch/offline/replay.h"
#include "support/sample_report.h"
#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace replay_command_test {

using testing::CapturedTerminal;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::WriteFile;

AnalyzedReport At(int64_t step, VerdictState state, const std::string& summary = "") {
  AnalyzedReport analyzed = testing::SampleReport();
  analyzed.report.step = step;
  analyzed.verdict.state = state;
  analyzed.verdict.summary = summary;
  return analyzed;
}

TEST(ReplayTable, SaysWhatChanges) {
  ReplayTable table({.utf8 = true});
  EXPECT_EQ(table.Header(), "    step       lr       phase             watched  verdict");
  EXPECT_EQ(table.Row(At(100, VerdictState::kHealthy, "all\x1b good")),
            "     100  3.33e-4       decay   gptq3 11.89\u00b10.59%  healthy            all? good");
  EXPECT_EQ(table.Row(At(200, VerdictState::kHealthy, "all good")),
            "     200  3.33e-4       decay   gptq3 11.89\u00b10.59%  healthy");
  EXPECT_EQ(table.Totals(), "2 reports, no alarm");
  EXPECT_THAT(table.Row(At(300, VerdictState::kDecayDegradation, "bad")),
              EndsWith("  decay_degradation  bad"));
  EXPECT_EQ(table.Totals(), "3 reports, 1 alarm, first alarm at step 300");
}

TEST(ReplayTable, CountsAlarmsThatBegin) {
  ReplayTable table({});
  for (const VerdictState state :
       {VerdictState::kSpike, VerdictState::kSpike, VerdictState::kDecayDegradation,
        VerdictState::kRecovering, VerdictState::kSpike}) {
    table.Row(At(100, state));
  }
  EXPECT_EQ(table.Totals(), "5 reports, 3 alarms, first alarm at step 100");
}

TEST(ReplayTable, ShowsTheWatchedQuantizer) {
  ReplayTable table({});
  AnalyzedReport report = At(100, VerdictState::kHealthy);
  report.verdict.method = QuantizationMethod::kRtn;
  report.verdict.bits = 4;
  EXPECT_THAT(table.Row(report), HasSubstr("rtn4 2.86+-0.14%"));
  report.verdict.method.reset();
  EXPECT_THAT(table.Row(report), HasSubstr("gptq3 11.89"));
  report.report.quantization.clear();
  EXPECT_THAT(table.Row(report), HasSubstr("     -  healthy"));
}

TEST(RunReplay, PrintsReportsThatReadBack) {
  const TempDir directory;
  const std::string line = ToJson(At(100, VerdictState::kSpike)) + "\n";
  WriteFile(directory.File("journal.jsonl"), line + line);
  CapturedTerminal captured;
  EXPECT_EQ(RunReplay({.journal = directory.path(), .json = true}, captured.get()), 0);
  std::string expected;
  const auto add = [&](const AnalyzedReport& report) {
    expected += ToJson(report) + "\n";
    return true;
  };
  ASSERT_TRUE(ReplayJournal(directory.path(), add).ok());
  EXPECT_EQ(captured.out(), expected);
  EXPECT_EQ(captured.error(), "");
}

TEST(RunReplay, FailsWithOneLine) {
  const TempDir directory;
  CapturedTerminal captured;
  EXPECT_EQ(RunReplay({.journal = directory.path()}, captured.get()), kExitFailed);
  EXPECT_EQ(captured.out(), "");
  EXPECT_EQ(captured.error(), "ptqwatch: there is no journal in '" + directory.path() + "'\n");
}

}  // namespace replay_command_test
}  // namespace ptqwatch::internal
