#include "replay_command.h"

#include <filesystem>
#include <string>

#include "captured_terminal.h"
#include "commands.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "journal/rank_directory.h"
#include "ptqwatch/offline/replay.h"
#include "support/rank_reports.h"
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

TEST(RunReplay, NamesTheRankWhoseParametersDiffer) {
  const TempDir directory;
  for (int64_t rank = 0; rank < 3; ++rank) {
    Report share = testing::ShareOf(testing::WholeReport(100), rank, 3);
    if (rank == 1) {
      share.snapshot_digest = "flipped";
      share.parameter_digests[1].digest = "flipped";
    }
    const std::string path = RankDirectory(directory.path(), rank);
    std::filesystem::create_directory(path);
    WriteFile(path + "/journal.jsonl", ToJson({.report = share, .verdict = {}}) + "\n");
  }
  const std::string note = "ptqwatch: '" + directory.path() +
                           "': replicas differ since step 100, last compared at step 100, rank 1 "
                           "unlike most, first in 'head'\n";
  CapturedTerminal replayed, history, status;
  EXPECT_EQ(RunReplay({.journal = directory.path()}, replayed.get()), 0);
  EXPECT_EQ(replayed.error(), note);
  EXPECT_EQ(RunHistory({.journal = directory.path(), .csv = true}, history.get()), 0);
  EXPECT_EQ(history.error(), note);
  Target target;
  target.run_dir = directory.path();
  EXPECT_EQ(RunStatusCommand({.target = target}, Clock::Real(), status.get()), 0);
  EXPECT_THAT(status.out(), HasSubstr("\nreplicas   differ since step 100, "));
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
